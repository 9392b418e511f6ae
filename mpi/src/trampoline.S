/* The exported MPI functions.
 *
 * The three ABIs differ in what a handle is (int or pointer) but pass every argument in integer registers, and
 * which MPI library a process uses is only known at run time. So each exported function is a jump through its
 * slot of `penstock_targets`: it hands on all arguments as they are, whatever their types. A slot first leads to
 * `resolve_first`, which saves the argument registers, asks penstock_resolve() for the target (and lets it fill
 * the slot), restores them and jumps there.
 */
#if defined(__x86_64__)

/* r11 is free for linkage code; the entry's number travels in it. */
#define ENTRY(name) \
    .globl name; .type name, @function; .p2align 4; \
name: .cfi_startproc; endbr64; movl $entry_number, %r11d; \
    jmp *penstock_targets + 8 * entry_number(%rip); \
    .cfi_endproc; .size name, . - name; \
    .set entry_number, entry_number + 1

    .text
    .type resolve_first, @function
resolve_first:
    .cfi_startproc
    endbr64
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    pushq %rcx
    .cfi_adjust_cfa_offset 8
    pushq %r8
    .cfi_adjust_cfa_offset 8
    pushq %r9
    .cfi_adjust_cfa_offset 8
    pushq %rax
    .cfi_adjust_cfa_offset 8
    movl %r11d, %edi
    call penstock_resolve
    movq %rax, %r11
    popq %rax
    .cfi_adjust_cfa_offset -8
    popq %r9
    .cfi_adjust_cfa_offset -8
    popq %r8
    .cfi_adjust_cfa_offset -8
    popq %rcx
    .cfi_adjust_cfa_offset -8
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    jmp *%r11
    .cfi_endproc
    .size resolve_first, . - resolve_first

#elif defined(__aarch64__)

/* x16 and x17 are free for linkage code; hint 34 is `bti c`. */
#define ENTRY(name) \
    .globl name; .type name, %function; .p2align 4; \
name: .cfi_startproc; hint #34; \
    adrp x17, penstock_targets + 8 * entry_number; \
    add x17, x17, :lo12:penstock_targets + 8 * entry_number; \
    ldr x17, [x17]; mov w16, #entry_number; br x17; \
    .cfi_endproc; .size name, . - name; \
    .set entry_number, entry_number + 1

    .text
    .type resolve_first, %function
resolve_first:
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, #-96]!
    .cfi_def_cfa_offset 96
    .cfi_offset 29, -96
    .cfi_offset 30, -88
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    mov w0, w16
    bl penstock_resolve
    mov x17, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldr x8, [sp, #80]
    ldp x29, x30, [sp], #96
    .cfi_def_cfa_offset 0
    .cfi_restore 29
    .cfi_restore 30
    br x17
    .cfi_endproc
    .size resolve_first, . - resolve_first

#else
#error "the trampolines are written for x86-64 and aarch64"
#endif

    .set entry_number, 0
#define FUNCTION(result, name, parameters, arguments) ENTRY(MPI_##name); ENTRY(PMPI_##name)
#define FORTRAN(name) ENTRY(name)
#include "functions.def"
#undef FUNCTION
#undef FORTRAN

    /* One slot per entry, all leading to resolve_first. */
    .data
    .p2align 3
    .globl penstock_targets
    .hidden penstock_targets
penstock_targets:
    .rept entry_number
    .quad resolve_first
    .endr
    .size penstock_targets, . - penstock_targets

#if defined(__linux__)
    .section .note.GNU-stack, "", %progbits
#endif
