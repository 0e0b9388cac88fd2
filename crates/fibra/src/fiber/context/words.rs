//! The floating-point control words: rounding, masked exceptions, flush to zero. Every execution has its own (S0-14). Above: the switches.
//! Below: the processor.

/// The floating-point control state of the current execution: MXCSR and the x87 control word, or FPCR.
#[inline(always)]
pub(super) fn control_words() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let (mut mxcsr, mut x87) = (0u32, 0u16);
        // SAFETY: both instructions write to the locals given and do nothing else.
        unsafe {
            core::arch::asm!(
                "stmxcsr [{}]",
                "fnstcw [{}]",
                in(reg) &raw mut mxcsr,
                in(reg) &raw mut x87,
                options(nostack, preserves_flags),
            );
        }
        u64::from(mxcsr) | u64::from(x87) << 32
    }
    #[cfg(target_arch = "aarch64")]
    {
        let fpcr: u64;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mrs {}, fpcr", out(reg) fpcr, options(nomem, nostack, preserves_flags)) };
        fpcr
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

/// Puts back what [`control_words`] of the same execution returned, or of the loop that it runs in.
#[inline(always)]
pub(super) fn set_control_words(control: u64) {
    #[cfg(target_arch = "x86_64")]
    {
        let (mxcsr, x87) = (control as u32, (control >> 32) as u16);
        // SAFETY: restores a state that this execution had, after clearing pending x87 exceptions of other executions.
        unsafe {
            core::arch::asm!(
                "fnclex",
                "ldmxcsr [{}]",
                "fldcw [{}]",
                in(reg) &raw const mxcsr,
                in(reg) &raw const x87,
                options(nostack),
            );
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: restores a state that this execution had.
    unsafe {
        core::arch::asm!("msr fpcr, {}", in(reg) control, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = control;
}
