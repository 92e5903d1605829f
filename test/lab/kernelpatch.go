package lab

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// User-mode Linux copies to a process's memory through the page table (maybe_map in arch/um/kernel/skas/uaccess.c). If the page is
// not writable, it handles a page fault, and then writes to the page that it finds. The fault handler can return without error and
// leave the page read-only: if the memory cgroup's OOM killer ended the process, or if another thread was faster. Then the kernel
// writes to the page of zeros that all processes share. In Linux 7.2 this page is read-only, and the kernel panics with "Segfault
// without recovery target".
//
// patchKernel replaces the function by one that checks the page again, and returns EFAULT to the process if 32 faults do not help.

// maybeMap is the function as in Debian's linux.uml 7.2: machine code, with the names of four values that the new function needs, too.
const maybeMap = `55 4189f1 4889e5 4155 49bd {current} 4154 49bc {virt_to_pte} 53 4889fb 4889de 4883ec18
	498b4500 488bb8 {mm} 41ffd4 4885c0 7416 488b10 f6c211 740e 4585c9 7440 83e230 4883fa20 7437
	31f6 4c8d45dc b901000000 4489ca 48b8 {handle_page_fault} 4889df ffd0 85c0 b800000000 751a
	498b4500 4889de 488bb8 {mm} 41ffd4 31d2 f60011 480f44c2 4883c418 5b 415c 415d 5d c3`

// patchedMaybeMap has the same arguments (%rdi: address, %esi: write) and result (the page's entry, or NULL).
var patchedMaybeMap = strings.Join([]string{
	"55 4889e5 53 4154 4155 4883ec18", // push %rbp; mov %rsp,%rbp; push %rbx; push %r12; push %r13; sub $0x18,%rsp
	"4889fb 4189f4 41bd20000000",      // mov %rdi,%rbx; mov %esi,%r12d; mov $32,%r13d
	// again:
	"48b8 {current} 488b00",   // movabs $current,%rax; mov (%rax),%rax
	"4889de 488bb8 {mm}",      // mov %rbx,%rsi; mov mm(%rax),%rdi
	"48b8 {virt_to_pte} ffd0", // movabs $virt_to_pte,%rax; call *%rax
	"4885c0 7415",             // test %rax,%rax; je fault
	"488b10 f6c211 740d",      // mov (%rax),%rdx; test $(_PAGE_PRESENT|_PAGE_PROTNONE),%dl; je fault
	"4585e4 7430",             // test %r12d,%r12d; je out
	"83e230 83fa20 7428",      // and $(_PAGE_RW|_PAGE_PROTNONE),%edx; cmp $_PAGE_RW,%edx; je out
	// fault:
	"41ffcd 7821",                   // dec %r13d; js null
	"4889df 31f6 4489e2 b901000000", // mov %rbx,%rdi; xor %esi,%esi; mov %r12d,%edx; mov $1,%ecx
	"4c8d45d4",                      // lea -0x2c(%rbp),%r8
	"48b8 {handle_page_fault} ffd0", // movabs $handle_page_fault,%rax; call *%rax
	"85c0 749d",                     // test %eax,%eax; je again
	"31c0",                          // null: xor %eax,%eax
	"4883c418 415d 415c 5b 5d c3",   // out: add $0x18,%rsp; pop %r13; pop %r12; pop %rbx; pop %rbp; ret
}, " ")

// sizes are the bytes of the named values.
var sizes = map[string]int{"current": 8, "virt_to_pte": 8, "handle_page_fault": 8, "mm": 4}

// patchKernel patches the kernel in a file, and reports whether it found the function. Another build than Debian's may have other
// machine code; it stays as it is.
func patchKernel(file string) (found bool, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	if found, err = patchMaybeMap(text); err != nil || !found {
		return false, err
	}
	return true, os.WriteFile(file, text, 0o755)
}

func patchMaybeMap(text []byte) (found bool, err error) {
	at, values, size, err := findCode(text, maybeMap)
	if err != nil || values == nil {
		return false, err
	}
	patched, err := machineCode(patchedMaybeMap, values)
	if err != nil {
		return false, err
	}
	if len(patched) > size {
		return false, fmt.Errorf("the new function has %d bytes, want at most %d", len(patched), size)
	}
	copy(text[at:], patched)
	return true, nil
}

// findCode returns the place of the first match of a pattern in text, the named values, and the size of the code; values is nil if there
// is no match.
func findCode(text []byte, pattern string) (at int, values map[string][]byte, size int, err error) {
	beginning, _, _ := strings.Cut(pattern, "{")
	first, err := machineCode(beginning, nil)
	if err != nil {
		return 0, nil, 0, err
	}
	for ; ; at++ {
		next := bytes.Index(text[at:], first)
		if next < 0 {
			return 0, nil, 0, nil
		}
		at += next
		if values, size = matchCode(text[at:], pattern); values != nil {
			return at, values, size, nil
		}
	}
}

// matchCode compares the beginning of text with a pattern. It returns the named values, and the size of the code; nil if they differ.
func matchCode(text []byte, pattern string) (values map[string][]byte, size int) {
	values = map[string][]byte{}
	for _, word := range strings.Fields(pattern) {
		name, named := strings.CutPrefix(word, "{")
		name = strings.TrimSuffix(name, "}")
		n := len(word) / 2
		if named {
			n = sizes[name]
		}
		if size+n > len(text) {
			return nil, 0
		}
		have := text[size : size+n]
		switch before, seen := values[name]; {
		case !named && hex.EncodeToString(have) != word, seen && !bytes.Equal(have, before):
			return nil, 0
		case named:
			values[name] = slices.Clone(have)
		}
		size += n
	}
	return values, size
}

// machineCode returns the bytes of a pattern with values for its names.
func machineCode(pattern string, values map[string][]byte) ([]byte, error) {
	var code []byte
	for _, word := range strings.Fields(pattern) {
		if name, named := strings.CutPrefix(word, "{"); named {
			value, known := values[strings.TrimSuffix(name, "}")]
			if !known {
				return nil, fmt.Errorf("no value for %s; have %v", word, slices.Sorted(maps.Keys(values)))
			}
			code = append(code, value...)
			continue
		}
		constant, err := hex.DecodeString(word)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", word, err)
		}
		code = append(code, constant...)
	}
	return code, nil
}
