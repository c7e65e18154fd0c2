package toolchain
