// The exported entry points, one jump each, and their rows (hook_table.h). No argument register is touched on the way, so
// one form serves every prototype, and who is called sees the caller's return address.
.macro hook_row name, since, first
  .section .rodata.hook_names, "a"
.Lname_\name:
  .asciz "\name"
  .section .data.hook_rows, "aw"
.Lrow_\name:
  .ifb \first
  .quad .Llazy_\name
  .else
  .quad \first
  .endif
  .quad .Llazy_\name, .Lentry_\name, .Llazy_\name, .Lname_\name, \since, 0, 0
.endm

#if defined(__x86_64__)

#if defined(__CET__)
#define LANDING endbr64
#else
#define LANDING
#endif

.macro entry_point name, since, first
  .text
  .p2align 4
  .globl \name
  .type \name, @function
\name:
.Lentry_\name:
  .cfi_startproc
  LANDING
  jmp *.Lrow_\name(%rip)
  .cfi_endproc
  .size \name, . - \name
  .p2align 3
.Llazy_\name:
  leaq .Lrow_\name(%rip), %r11
  jmp .Llazy
  hook_row \name, \since, \first
.endm

// r11: the row of a hook whose driver function is not known yet.
  .text
.Llazy:
  .cfi_startproc
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  pushq %rax
  .cfi_adjust_cfa_offset 56
  movq %r11, %rdi
  call gpuflight_hooks_resolve
  movq %rax, %r11
  popq %rax
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  .cfi_adjust_cfa_offset -56
  jmp *%r11
  .cfi_endproc

// The real functions tell RTLD_NEXT and RTLD_DEFAULT by their return address: ours only choose where to jump.
.macro loader_call name, choose
  .text
  .p2align 4
  .globl \name
  .type \name, @function
\name:
  .cfi_startproc
  LANDING
  pushq %rdi
  pushq %rsi
  pushq %rdx
  .cfi_adjust_cfa_offset 24
  movq 24(%rsp), %rcx
  call \choose
  movq %rax, %r11
  popq %rdx
  popq %rsi
  popq %rdi
  .cfi_adjust_cfa_offset -24
  jmp *%r11
  .cfi_endproc
  .size \name, . - \name
.endm

#elif defined(__aarch64__)

// Readable by older assemblers too: x16 and x17 are the ones that a call may lose on its way.
.macro entry_point name, since, first
  .text
  .p2align 4
  .globl \name
  .type \name, %function
\name:
.Lentry_\name:
  .cfi_startproc
  hint #34  // bti c
  adrp x16, .Lrow_\name
  add x16, x16, :lo12:.Lrow_\name
  ldar x16, [x16]  // what was written before the row was turned is there in the hook
  br x16
  .cfi_endproc
  .size \name, . - \name
.Llazy_\name:
  hint #36  // bti j
  adrp x17, .Lrow_\name
  add x17, x17, :lo12:.Lrow_\name
  b .Llazy
  hook_row \name, \since, \first
.endm

  .text
.Llazy:
  .cfi_startproc
  stp x29, x30, [sp, #-96]!
  .cfi_adjust_cfa_offset 96
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  mov x0, x17
  bl gpuflight_hooks_resolve
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldr x8, [sp, #80]
  ldp x29, x30, [sp], #96
  .cfi_adjust_cfa_offset -96
  br x16
  .cfi_endproc

.macro loader_call name, choose
  .text
  .p2align 4
  .globl \name
  .type \name, %function
\name:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-48]!
  .cfi_adjust_cfa_offset 48
  stp x0, x1, [sp, #16]
  str x2, [sp, #32]
  mov x3, x30
  bl \choose
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldr x2, [sp, #32]
  ldp x29, x30, [sp], #48
  .cfi_adjust_cfa_offset -48
  br x16
  .cfi_endproc
  .size \name, . - \name
.endm

#endif

  .section .data.hook_rows, "aw"
  .p2align 6
  .globl gpuflight_hooks_first_row
  .hidden gpuflight_hooks_first_row
gpuflight_hooks_first_row:

#define HOOK(name, since) entry_point name, since
#define HOOK_SZ(name, since) entry_point name, since; entry_point name##_ptsz, since
#define HOOK_DS(name, since) entry_point name, since; entry_point name##_ptds, since
#define HOOK_OWN(name, since, first) entry_point name, since, first
#include "hooks/hook_names.inc"

  .section .data.hook_rows, "aw"
  .globl gpuflight_hooks_rows_end
  .hidden gpuflight_hooks_rows_end
gpuflight_hooks_rows_end:

loader_call dlsym, gpuflight_hooks_choose_dlsym
loader_call dlvsym, gpuflight_hooks_choose_dlvsym

  // For ourselves: `dlsym` is the one of whoever is first.
  .globl gpuflight_hooks_dlsym
  .hidden gpuflight_hooks_dlsym
  .set gpuflight_hooks_dlsym, dlsym

  .section .note.GNU-stack, "", %progbits
