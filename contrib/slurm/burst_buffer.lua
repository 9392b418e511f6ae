-- For Slurm's plugin burst_buffer/lua, on slurmctld's host: brings a job's input into a deployment that stays before the job gets its
-- nodes, and its output out after it has given them back (docs/administer/slurm.md). Copy to the directory of slurm.conf. In a job's script:
--
--   #BB_LUA stage_in /home/alice/case7 /in
--   #BB_LUA stage_out /out /home/alice/results
--
-- Slurm runs it as root and without a PATH. All work is done with the rights of the job's user. A failure before the job holds the job,
-- one after it keeps the data in the deployment; nothing here drains a node.

local penstock = "/usr/local/bin/penstock"
local deployment = "/data/fs"
-- Who a job's user is: Slurm says so only at the beginning.
local users = "/run/penstock-bb"

-- Slurm may have Lua 5.1, which does not tell the exit code of a pipe.
local DONE = "penstock-has-done-it"
local PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"

-- Plain paths from / on: a shell sees them.
local function is_path(path)
    return path:match("^/[%w%._/+-]*$") and not ("/" .. path .. "/"):find("/../", 1, true)
end

-- The directives of a script: { { verb, from, to }, ... }, or nil and what is wrong.
local function directives(script)
    local file, why = io.open(script)
    if not file then
        return nil, "cannot read the script: " .. tostring(why)
    end
    local found = {}
    for line in file:lines() do
        local words = line:match("^#BB_LUA%s+(.*)")
        if words then
            local verb, from, to = words:match("^(stage_%a+)%s+(%S+)%s+(%S+)%s*$")
            if (verb ~= "stage_in" and verb ~= "stage_out") or not is_path(from) or not is_path(to) then
                file:close()
                return nil, "not understood: " .. line .. "; write #BB_LUA stage_in /DIR /IN or stage_out /OUT /DIR, plain paths"
            end
            found[#found + 1] = { verb, from, to }
        end
    end
    file:close()
    return found
end

-- Runs a command line with the rights of the job's user; if it fails, what it said.
local function as_user(job, line)
    local file = io.open(users .. "/" .. job)
    local uid, gid = (file and file:read("*a") or ""):match("^(%d+) (%d+)$")
    if file then
        file:close()
    end
    if not uid then
        return "the user of job " .. job .. " is not known"
    end
    local become = "env -i " .. PATH .. " setpriv --reuid " .. uid .. " --regid " .. gid .. " --clear-groups "
    local pipe = io.popen(become .. line .. " 2>&1 </dev/null && echo " .. DONE)
    local first, last = nil, ""
    for said in pipe:lines() do
        first, last = first or said, said
    end
    pipe:close()
    -- What went wrong comes first, then what to do.
    return last ~= DONE and (first or "it said nothing") or nil
end

local function stage(job, script, wanted)
    local all, why = directives(script)
    if not all then
        return slurm.ERROR, why
    end
    for _, directive in ipairs(all) do
        local verb, from, to = directive[1], directive[2], directive[3]
        if verb == wanted then
            local inward = verb == "stage_in"
            local names = inward and { "stage-in", from, "penstock:" .. to } or { "stage-out", "penstock:" .. from, to }
            local line = string.format("%s %s -d %s --from %s --to %s .", penstock, names[1], deployment, names[2], names[3])
            local failed = as_user(job, line)
            if failed then
                slurm.log_info("penstock: job %s: %s: %s", job, line, failed)
                return slurm.ERROR, verb .. " failed: " .. failed
            end
        end
    end
    return slurm.SUCCESS
end

function slurm_bb_job_process(script)
    local all, why = directives(script)
    if not all then
        return slurm.ERROR, why
    end
    return slurm.SUCCESS
end

function slurm_bb_pools()
    return slurm.SUCCESS
end

function slurm_bb_setup(job, uid, gid, _, _, _)
    os.execute(PATH .. " mkdir -p -m 700 " .. users)
    local file, why = io.open(users .. "/" .. job, "w")
    if not file then
        return slurm.ERROR, tostring(why)
    end
    file:write(string.format("%d %d", uid, gid))
    file:close()
    return slurm.SUCCESS
end

function slurm_bb_data_in(job, script)
    return stage(job, script, "stage_in")
end

function slurm_bb_data_out(job, script)
    return stage(job, script, "stage_out")
end

function slurm_bb_job_teardown(job, _, _)
    os.remove(users .. "/" .. job)
    return slurm.SUCCESS
end

function slurm_bb_real_size(_)
    return slurm.SUCCESS, "0"
end

function slurm_bb_paths(_, _, _)
    return slurm.SUCCESS
end

function slurm_bb_pre_run(_, _)
    return slurm.SUCCESS
end

function slurm_bb_post_run(_, _)
    return slurm.SUCCESS
end

function slurm_bb_get_status(...)
    return slurm.SUCCESS, ""
end
