/* A guest that costs next to nothing: it boots in 0.2 s where Linux takes 5, and its idle processor takes 0.3 % of one.
 *
 * QEMU starts it by -kernel (Multiboot) on the machine types pc and q35, with any number of vCPUs; it uses the first one.
 * It prints GUEST-READY and a prompt, "# ", on the first serial port. It does not echo what is typed: every word seen is an answer.
 * One command per line; `guest.run=COMMAND[=ARGUMENT][,COMMAND...]` in the kernel's arguments runs commands before GUEST-READY.
 *
 *   echo WORDS      prints WORDS
 *   uptime          prints "uptime=SECONDS boot=ID commands=COUNT": the ID differs at each boot and stays over a migration
 *   counter         prints "tick N" once a second, from tick 1 on
 *   fill MIB        fills so much memory with a pattern that no page shares with another, and prints "filled MIB"
 *   dirty PAGES     writes to so many pages a tick (a twentieth of a second), round and round through the memory that fill filled,
 *                   or through all where it filled none; 0 stops it; it first reads what it wrote there last
 *   check           reads what fill and dirty wrote, and prints "intact PAGES", or "corrupt ADDRESS" of the first wrong word: from then
 *                   on always this one, also if dirty found it and overwrote it
 *   spin [LOOPS]    keeps the vCPU busy: all the time, or for so many thousand loops a tick
 *   deaf            takes no notice of the power button
 *   poweroff        powers off, as the power button does
 *   reboot          resets the machine
 *   panic           prints a line, tells the pvpanic device if there is one, and halts
 *
 * It prints POWER-BUTTON, NMI, and "key CODE" for each byte of the keyboard: a scan code, with 80 (hexadecimal) added at the release.
 */
#include <stddef.h>
#include <stdint.h>

enum { HZ = 20, PIT_HZ = 1193182, PAGE = 4096, WORDS = PAGE / 4, FIRST_FREE = 2 << 20 };
static const uint32_t MIXER = 2654435761; /* of Knuth's multiplicative hash */
enum { COM1 = 0x3f8, PIT = 0x40, PIC1 = 0x20, PIC2 = 0xa0, PVPANIC = 0x505, RESET = 0xcf9 };
enum { KEYBOARD_DATA = 0x60, KEYBOARD_STATUS = 0x64 };
enum { NMI = 2, VECTORS = 32, TIMER = 0, KEYBOARD = 1, SERIAL = 4, CODE = 8, DATA = 16 };
enum { POWER_BUTTON = 1 << 8, SCI_ENABLED = 1, SLEEP = 1 << 13 };

static void outb(uint16_t port, uint8_t value) { __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port)); }
static void outw(uint16_t port, uint16_t value) { __asm__ volatile("outw %0, %1" ::"a"(value), "Nd"(port)); }
static uint8_t inb(uint16_t port) { uint8_t value; __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port)); return value; }
static uint16_t inw(uint16_t port) { uint16_t value; __asm__ volatile("inw %1, %0" : "=a"(value) : "Nd"(port)); return value; }
static void halt(void) { for (;;) __asm__ volatile("cli; hlt"); }

/* Text. */

static int same(const char *one, const char *other) {
  while (*one && *one == *other) one++, other++;
  return *one == *other;
}

static int begins(const char *text, const char *prefix, size_t length) {
  while (length && *text++ == *prefix++) length--;
  return !length;
}

static uint32_t number(const char *text) {
  uint32_t value = 0;
  while (*text >= '0' && *text <= '9') value = value * 10 + *text++ - '0';
  return value;
}

/* The first serial port. A machine without one reads as all ones, and is silent. */

static int has_serial, column;

static void put(char letter) {
  while (!(inb(COM1 + 5) & 0x20)) ;
  outb(COM1, letter);
  column = letter == '\n' ? 0 : column + 1;
}

static void say(const char *text) {
  if (!has_serial) return;
  for (; *text; text++) {
    if (*text == '\n') put('\r');
    put(*text);
  }
}

static void say_number(uint32_t value, uint32_t base) {
  char text[11], *at = text + 10;
  *at = 0;
  do *--at = "0123456789abcdef"[value % base]; while (value /= base);
  say(at);
}

static void say_value(const char *name, uint32_t value) { say(name), say_number(value, 10); }

static void start_serial(void) {
  outb(COM1 + 1, 0);                                              /* no interrupts yet */
  outb(COM1 + 3, 0x80), outb(COM1, 1), outb(COM1 + 1, 0);         /* 115200 baud */
  outb(COM1 + 3, 3), outb(COM1 + 2, 7), outb(COM1 + 4, 0xb);      /* 8N1, queues of which each byte interrupts, interrupts let out */
  has_serial = inb(COM1 + 5) != 0xff;
  if (has_serial) outb(COM1 + 1, 1);
}

/* ACPI: the ports of the power button and of power off are in the FADT, and differ between chipsets. Without ACPI they are 0. */

struct rsdp { char signature[8]; uint8_t checksum, oem[6], revision; uint32_t rsdt; };
struct table { char signature[4]; uint32_t length; uint8_t rest[28]; };
struct fadt { struct table header; uint32_t facs, dsdt; uint8_t model, profile; uint16_t sci; uint32_t smi_command;
              uint8_t acpi_enable, acpi_disable, s4bios, pstate; uint32_t pm1a_event, pm1b_event, pm1a_control; };
static uint16_t pm1a_event, pm1a_control;

static void start_acpi(void) {
  const struct rsdp *root = NULL;
  for (uintptr_t at = 0xe0000; at < 0x100000 && !root; at += 16)
    if (begins((char *)at, "RSD PTR ", 8)) root = (struct rsdp *)at;
  if (!root) return;
  const struct table *tables = (struct table *)root->rsdt;
  for (const uint32_t *entry = (uint32_t *)(tables + 1); entry < (uint32_t *)((char *)tables + tables->length); entry++) {
    const struct fadt *fadt = (struct fadt *)*entry;
    if (!begins(fadt->header.signature, "FACP", 4)) continue;
    pm1a_event = fadt->pm1a_event, pm1a_control = fadt->pm1a_control;
    if (fadt->smi_command && !(inw(pm1a_control) & SCI_ENABLED)) outb(fadt->smi_command, fadt->acpi_enable);
    outw(pm1a_event + 2, POWER_BUTTON);
  }
}

static void power_off(void) {
  say(pm1a_control ? "Power down\n" : "no ACPI\n");
  if (pm1a_control) outw(pm1a_control, SLEEP); /* the type of sleep that is off is 0 on QEMU's chipsets */
}

static int deaf;

static void look_at_power_button(void) {
  if (!pm1a_event || !(inw(pm1a_event) & POWER_BUTTON)) return;
  outw(pm1a_event, POWER_BUTTON); /* a 1 clears it */
  say(column ? "\nPOWER-BUTTON\n" : "POWER-BUTTON\n");
  if (!deaf) power_off();
}

/* Memory from FIRST_FREE on. The first word of a page is dirty's, the others are fill's. */

static uint32_t pages, filled, dirtied, rate, next, rounds;
static volatile uint32_t *wrong;

static volatile uint32_t *page_of(uint32_t page) { return (uint32_t *)(uintptr_t)(FIRST_FREE + page * PAGE); }

static uint32_t pattern(uint32_t page, uint32_t word) {
  uint32_t value = (page * WORDS + word) * MIXER;
  return value ^ value >> 15;
}

static void fill(const char *argument) {
  uint32_t wanted = number(argument), most = pages / 256;
  filled = (wanted < most ? wanted : most) * 256;
  for (uint32_t page = 0; page < filled; page++)
    for (uint32_t word = 1; word < WORDS; word++) page_of(page)[word] = pattern(page, word);
  say_value("filled ", filled / 256), say("\n");
}

static void dirty(const char *argument) {
  uint32_t range = filled ? filled : pages;
  if (range != dirtied) dirtied = range, next = 0, rounds = 0;
  rate = number(argument);
}

static void dirty_some(void) {
  for (uint32_t count = 0; count < rate && count < dirtied; count++) {
    volatile uint32_t *word = page_of(next);
    if (!wrong && rounds && *word != rounds) wrong = word;
    *word = rounds + 1;
    if (++next == dirtied) next = 0, rounds++;
  }
}

static void check(const char *argument) {
  (void)argument;
  uint32_t seen = rounds ? dirtied : next, all = seen > filled ? seen : filled;
  for (uint32_t page = 0; !wrong && page < all; page++) {
    uint32_t word = page < seen && *page_of(page) != (page < next ? rounds + 1 : rounds) ? 0 : 1;
    while (word && page < filled && word < WORDS && page_of(page)[word] == pattern(page, word)) word++;
    if (!word || (page < filled && word < WORDS)) wrong = page_of(page) + word;
  }
  if (wrong) say("corrupt "), say_number((uintptr_t)wrong, 16), say("\n");
  else say_value("intact ", all), say("\n");
}

/* Commands. */

static uint32_t done_ticks, commands, boot, counted, counter_from, loops;
static int counting, spinning;

static void echo(const char *argument) { say(argument), say("\n"); }
static void counter(const char *argument) { (void)argument, counting = 1, counter_from = done_ticks; }
static void spin(const char *argument) { loops = number(argument) * 1000, spinning = !*argument; }
static void be_deaf(const char *argument) { (void)argument, deaf = 1; }
static void poweroff(const char *argument) { (void)argument, power_off(); }
static void reboot(const char *argument) { (void)argument, outb(RESET, 6), halt(); }

static void uptime(const char *argument) {
  (void)argument;
  say_value("uptime=", done_ticks / HZ), say(" boot="), say_number(boot, 16), say_value(" commands=", commands), say("\n");
}

static void panic(const char *argument) {
  (void)argument;
  say("Kernel panic: it was told to\n");
  if (inb(PVPANIC) != 0xff) outb(PVPANIC, 1);
  halt();
}

static const struct { const char *name; void (*run)(const char *argument); } known[] = {
  {"echo", echo}, {"uptime", uptime}, {"counter", counter}, {"fill", fill}, {"dirty", dirty}, {"check", check}, {"spin", spin},
  {"deaf", be_deaf}, {"poweroff", poweroff}, {"reboot", reboot}, {"panic", panic},
};

/* Run a line of a command and, after the first separator, its argument. */
static void run(char *line, char separator) {
  char *argument = line;
  while (*argument && *argument != separator) argument++;
  if (*argument) *argument++ = 0;
  if (!*line) return;
  commands++;
  for (size_t at = 0; at < sizeof known / sizeof *known; at++)
    if (same(line, known[at].name)) { known[at].run(argument); return; }
  say(line), say(": not found\n");
}

/* Run the commands of guest.run=, which end at a space. */
static void run_arguments(char *text) {
  static const char option[] = "guest.run=";
  for (; *text; text++) {
    if (!begins(text, option, sizeof option - 1)) continue;
    for (text += sizeof option - 1; *text && *text != ' ';) {
      char *end = text, last;
      while (*end && *end != ',' && *end != ' ') end++;
      last = *end, *end = 0;
      run(text, '=');
      text = last == ',' ? end + 1 : end;
      if (last != ',') return;
    }
  }
}

/* Interrupts only note what happened; the loop of kernel() does what follows from it. */

struct frame;
static volatile uint32_t ticks;
static volatile uint8_t typed[256], written, taken; /* indices wrap as the queue does */
static volatile uint8_t keys[256], pressed, told;
static volatile uint32_t interrupted, reported;

__attribute__((interrupt)) static void on_timer(struct frame *frame) { (void)frame, ticks++, outb(PIC1, 0x20); }

__attribute__((interrupt)) static void on_serial(struct frame *frame) {
  (void)frame;
  while (inb(COM1 + 5) & 1) typed[written++] = inb(COM1);
  outb(PIC1, 0x20);
}

__attribute__((interrupt)) static void on_keyboard(struct frame *frame) {
  (void)frame;
  while (inb(KEYBOARD_STATUS) & 1) keys[pressed++] = inb(KEYBOARD_DATA);
  outb(PIC1, 0x20);
}

__attribute__((interrupt)) static void on_nmi(struct frame *frame) { (void)frame, interrupted++; }

__attribute__((interrupt)) static void on_other(struct frame *frame) { (void)frame, outb(PIC2, 0x20), outb(PIC1, 0x20); }

struct table_register { uint16_t limit; uint32_t base; } __attribute__((packed));
struct gate { uint16_t low, selector, type, high; } __attribute__((packed));

static void start_interrupts(void) {
  static const uint64_t segments[] = {0, 0x00cf9a000000ffff, 0x00cf92000000ffff}; /* none, code and data: all 4 GiB */
  static struct gate gates[VECTORS + 16];
  for (int line = 0; line < 16; line++) {
    uintptr_t handler = (uintptr_t)(line == TIMER ? on_timer : line == KEYBOARD ? on_keyboard : line == SERIAL ? on_serial : on_other);
    gates[VECTORS + line] = (struct gate){handler, CODE, 0x8e00, handler >> 16};
  }
  gates[NMI] = (struct gate){(uintptr_t)on_nmi, CODE, 0x8e00, (uintptr_t)on_nmi >> 16};
  struct table_register gdt = {sizeof segments - 1, (uintptr_t)segments}, idt = {sizeof gates - 1, (uintptr_t)gates};
  __asm__ volatile("lgdt %0; ljmp %2, $1f; 1: mov %3, %%ds; mov %3, %%es; mov %3, %%ss; lidt %1"
                   ::"m"(gdt), "m"(idt), "i"(CODE), "r"(DATA));
  outb(PIC1, 0x11), outb(PIC1 + 1, VECTORS), outb(PIC1 + 1, 4), outb(PIC1 + 1, 1);
  outb(PIC2, 0x11), outb(PIC2 + 1, VECTORS + 8), outb(PIC2 + 1, 2), outb(PIC2 + 1, 1);
  outb(PIC1 + 1, (uint8_t)~(1 << TIMER | 1 << KEYBOARD | 1 << SERIAL)), outb(PIC2 + 1, 0xff);
  outb(PIT + 3, 0x34), outb(PIT, (PIT_HZ / HZ) & 0xff), outb(PIT, (PIT_HZ / HZ) >> 8);
  __asm__ volatile("sti");
}

static void on_tick(void) {
  done_ticks++;
  if (counting && (done_ticks - counter_from) % HZ == 0) say_value(column ? "\ntick " : "tick ", ++counted), say("\n");
  if (rate) dirty_some();
  for (volatile uint32_t left = loops; left; left--) ;
  look_at_power_button();
}

static void start_line(void) {
  if (column) say("\n");
}

static void report_signals(void) {
  while (reported != interrupted) reported++, start_line(), say("NMI\n");
  while (told != pressed) start_line(), say("key "), say_number(keys[told++], 16), say("\n");
}

static void on_letter(char letter) {
  static char line[256];
  static size_t length;
  if (letter != '\n' && letter != '\r') {
    if (length < sizeof line - 1) line[length++] = letter;
    return;
  }
  line[length] = 0, length = 0;
  run(line, ' ');
  say("# ");
}

/* What the boot loader says: a command line, and a map of the memory. */

struct multiboot { uint32_t flags, low, high, device, command_line, modules, module_list, symbols[4], map_length, map; };
struct range { uint32_t size; uint64_t base, length; uint32_t type; } __attribute__((packed));

static void take_memory(const struct multiboot *said) {
  for (uint32_t at = said->map; at < said->map + said->map_length; at += ((struct range *)at)->size + 4) {
    const struct range *range = (struct range *)at;
    if (range->type == 1 && range->base <= FIRST_FREE && range->base + range->length > FIRST_FREE)
      pages = (range->base + range->length - FIRST_FREE) >> 12;
  }
}

void kernel(const struct multiboot *said) {
  static char arguments[2048];
  const char *given = (const char *)said->command_line;
  for (size_t at = 0; at < sizeof arguments - 1 && given[at]; at++) arguments[at] = given[at];
  take_memory(said);
  __asm__ volatile("rdtsc" : "=a"(boot)::"edx");
  boot *= MIXER; /* two boots differ in the low digits only */
  start_serial(), start_acpi(), start_interrupts();
  say("\n");
  run_arguments(arguments);
  say("GUEST-READY\n# ");
  for (;;) {
    __asm__ volatile("cli");
    if (!spinning && done_ticks == ticks && taken == written && told == pressed && reported == interrupted) __asm__ volatile("sti; hlt"); /* an interrupt between the two wakes it */
    __asm__ volatile("sti");
    if (done_ticks != ticks) on_tick();
    while (taken != written) on_letter(typed[taken++]);
    report_signals();
  }
}
