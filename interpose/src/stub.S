/* The stubs that calls of library functions lead through.
 *
 * A stub knows its number and nothing of the function's type. All functions of the table take integers and pointers only, so
 * the common part keeps the argument registers as an array and hands it to library_call() (libraries.c) together with the place
 * of the arguments on the stack and the return address; what that returns is the function's result.
 */
#include "stubs.h"

    .text
#if defined(__x86_64__)

    .type stub_common, @function
stub_common:
    .cfi_startproc
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq $64, %rsp
    movq %rdi, (%rsp)
    movq %rsi, 8(%rsp)
    movq %rdx, 16(%rsp)
    movq %rcx, 24(%rsp)
    movq %r8, 32(%rsp)
    movq %r9, 40(%rsp)
    movq %rsp, %rdi
    leaq 16(%rbp), %rsi
    movl %r11d, %edx
    movq 8(%rbp), %rcx
    call library_call
    leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size stub_common, . - stub_common

    .globl stub_entries
    .hidden stub_entries
    .p2align 4
stub_entries:
    .set stub_number, 0
    .rept STUBS
    .p2align 4
    endbr64
    movl $stub_number, %r11d
    jmp stub_common
    .set stub_number, stub_number + 1
    .endr

#elif defined(__aarch64__)

    .type stub_common, %function
stub_common:
    .cfi_startproc
    stp x29, x30, [sp, #-80]!
    .cfi_def_cfa_offset 80
    .cfi_offset 29, -80
    .cfi_offset 30, -72
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    mov x3, x30
    add x0, sp, #16
    add x1, sp, #80
    mov w2, w16
    bl library_call
    ldp x29, x30, [sp], #80
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    .size stub_common, . - stub_common

    .globl stub_entries
    .hidden stub_entries
    .p2align 4
stub_entries:
    .set stub_number, 0
    .rept STUBS
    .p2align 4
    hint #34
    mov w16, #stub_number
    b stub_common
    .set stub_number, stub_number + 1
    .endr

#else
#error "stubs are written for x86-64 and aarch64"
#endif

    .section .note.GNU-stack, "", %progbits
