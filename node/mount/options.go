package mount

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Patterns of the values of mount options.
const (
	number = `[0-9]{1,10}`
	size   = `[0-9]{1,10}[kmgKMG]?`
	// selinuxContext is a label as the kubelet passes it: in quotation marks if it has commas.
	selinuxContext = `[A-Za-z0-9_.:-]{1,255}|"[A-Za-z0-9_.:,-]{1,255}"`
)

// allowedOptions are the mount options that each file system may have, with the pattern of the value; "": no value. A pattern is compiled
// when it is used: all of them would need two megabytes. The driver refuses all others. They could name another device or a path of the node (journal_path, logdev, rtdev, device, loop,
// X-mount.*), or turn the mount into another operation (bind, remount, move). They could skip the recovery at a mount (noload,
// norecovery), or let an error of one file system stop the node (errors=panic, fatal_errors=panic).
var allowedOptions = map[string]map[string]string{
	"ext4": union(commonOptions,
		flags(`acl noacl user_xattr nouser_xattr barrier nobarrier discard nodiscard delalloc nodelalloc auto_da_alloc noauto_da_alloc
			journal_checksum nojournal_checksum journal_async_commit dioread_lock dioread_nolock block_validity noblock_validity
			grpid nogrpid bsdgroups sysvgroups bsddf minixdf init_itable noinit_itable nombcache dax
			quota noquota usrquota grpquota prjquota`),
		valued(number, `commit stripe inode_readahead_blks max_batch_time min_batch_time max_dir_size_kb init_itable resuid resgid`),
		valued(`[01]`, `barrier auto_da_alloc mb_optimize_scan`),
		valued(`[0-7]`, `journal_ioprio`),
		valued(`ordered|writeback|journal`, `data`),
		valued(`continue|remount-ro`, `errors`),
		valued(`always|never|inode`, `dax`),
		valued(`[a-z]{1,32}\.(user|group)`, `usrjquota grpjquota`),
		valued(`vfsold|vfsv0|vfsv1`, `jqfmt`)),
	"xfs": union(commonOptions,
		flags(`attr2 noattr2 discard nodiscard filestreams grpid nogrpid bsdgroups sysvgroups ikeep noikeep inode32 inode64
			largeio nolargeio noalign nouuid swalloc wsync dax
			noquota quota uquota usrquota qnoenforce uqnoenforce gquota grpquota gqnoenforce pquota prjquota pqnoenforce`),
		valued(size, `allocsize logbsize`),
		valued(number, `logbufs sunit swidth`),
		valued(`always|never|inode`, `dax`)),
	"btrfs": union(commonOptions,
		flags(`acl noacl autodefrag noautodefrag barrier nobarrier clear_cache compress compress-force datacow nodatacow
			datasum nodatasum discard nodiscard flushoncommit noflushoncommit skip_balance space_cache nospace_cache
			ssd nossd ssd_spread nossd_spread treelog notreelog user_subvol_rm_allowed`),
		valued(number, `commit metadata_ratio thread_pool`),
		valued(size, `max_inline`),
		valued(`no|none|lzo|zlib(:[1-9])?|zstd(:-?[0-9]{1,2})?`, `compress compress-force`),
		valued(`sync|async`, `discard`),
		valued(`v1|v2`, `space_cache`)),
}

// commonOptions are the options that every file system may have.
var commonOptions = union(
	flags(`defaults ro rw atime noatime diratime nodiratime relatime norelatime strictatime nostrictatime lazytime nolazytime
		sync async dirsync suid nosuid dev nodev exec noexec nosymfollow iversion noiversion`),
	valued(selinuxContext, `context fscontext defcontext rootcontext`))

// flags returns options without a value.
func flags(names string) map[string]string {
	forms := map[string]string{}
	for name := range strings.FieldsSeq(names) {
		forms[name] = ""
	}
	return forms
}

// valued returns options whose value matches the pattern; their keys end in "=".
func valued(pattern, names string) map[string]string {
	forms := map[string]string{}
	for name := range strings.FieldsSeq(names) {
		forms[name+"="] = `^(?:` + pattern + `)$`
	}
	return forms
}

func union(sets ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, set := range sets {
		maps.Copy(all, set)
	}
	return all
}

// skipRecovery are options with which other systems mount a read-only copy. The driver has replayed its journal.
var skipRecovery = []string{"noload", "norecovery", "nologreplay"}

// CheckOptions refuses (lvm.KindInvalid) mount options that are not allowed for a type of file system.
func CheckOptions(fsType string, flags []string) error {
	for _, option := range SplitOptions(flags) {
		name, value, valued := strings.Cut(option, "=")
		if valued {
			name += "="
		}
		if slices.Contains(skipRecovery, option) {
			return lvm.Errorf(lvm.KindInvalid, "the mount option %q is not allowed for %s: without the recovery, files are missing that were flushed. "+
				"A read-only copy needs no such option, because the driver replays its journal once: remove the option", option, fsType)
		}
		values, there := allowedOptions[fsType][name]
		if !there || valued && !regexp.MustCompile(values).MatchString(value) {
			return lvm.Errorf(lvm.KindInvalid, "the mount option %q is not allowed for %s; allowed are %s",
				option, fsType, strings.Join(slices.Sorted(maps.Keys(allowedOptions[fsType])), " "))
		}
	}
	return nil
}

// SplitOptions splits options as mount(8) does: at each comma outside of quotation marks.
func SplitOptions(flags []string) (options []string) {
	for _, flag := range flags {
		begin, quoted := 0, false
		for i, c := range flag {
			switch {
			case c == '"':
				quoted = !quoted
			case c == ',' && !quoted:
				options, begin = append(options, flag[begin:i]), i+1
			}
		}
		options = append(options, flag[begin:])
	}
	return options
}
