/* How many stubs there are, and bytes of one: for C and the assembler. */
#define STUBS 4096
#define STUB_BYTES 16
