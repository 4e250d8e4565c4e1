/* The smallest program; linked in several ways for cli_elf_test. */
int main(void) { return 0; }
