# The two commands of a stranger are `make run` and `make test`. Each does its own set-up.
.PHONY: run test test-all test-vm crash lint install-lib clean help

help:
	@echo "make run       build, make a pool, mount it at ./mnt, and show that it survives being killed"
	@echo "make test      everything that must hold (about an hour on two processors)"
	@echo "make test-all  the same, longer: more kills, more seeds, larger programs, ignored tests"
	@echo "make test-vm   pools on emulated NVDIMMs in virtual machines, whose plug is pulled (four to ten minutes; needs qemu, which root gets installed)"
	@echo "make crash     every crash of every pair of operations, and more: takes long; ends with an error if a state is wrong"
	@echo "make lint      rustfmt, clippy and shellcheck, warnings denied"
	@echo "make install-lib  the C library, to PREFIX (/usr/local), below DESTDIR: see docs/c-library.md"
	@echo "make clean     unmount ./mnt, remove its pool and what was built"

run:
	@bash scripts/run.sh

test:
	@bash scripts/test.sh

test-all:
	@bash scripts/test.sh --all

test-vm:
	@bash scripts/test-vm.sh

crash:
	@bash scripts/crash.sh

lint:
	@bash scripts/lint.sh

install-lib:
	@PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" DESTDIR="$(DESTDIR)" bash scripts/install-lib.sh

clean:
	@bash scripts/clean.sh
