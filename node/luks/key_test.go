package luks

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

const (
	random1 = "0123456789abcdef0123456789abcdef"
	random2 = "fedcba9876543210fedcba9876543210"
)

func TestParseSecret(t *testing.T) {
	for name, test := range map[string]struct {
		secret            map[string]string
		current, previous string
		random            bool
		says              string
	}{
		"random":              {secret: map[string]string{"key": random1}, current: random1, random: true},
		"passphrase":          {secret: map[string]string{"passphrase": "12345678"}, current: "12345678"},
		"bytes as they are":   {secret: map[string]string{"passphrase": " 12345678\n\x00"}, current: " 12345678\n\x00"},
		"rotation":            {secret: map[string]string{"key": random1, "previousPassphrase": "12345678"}, current: random1, previous: "12345678", random: true},
		"same key":            {secret: map[string]string{"key": random1, "previousKey": random1}, current: random1, random: true},
		"other fields":        {secret: map[string]string{"key": random1, "tls.key": "private"}, current: random1, random: true},
		"none":                {says: `needs a field "key"`},
		"another program's":   {secret: map[string]string{"tls.key": "private", "token": "private"}, says: `needs a field "key"`},
		"only a previous key": {secret: map[string]string{"previousKey": random1}, says: `needs a field "key"`},
		"both":                {secret: map[string]string{"key": random1, "passphrase": "12345678"}, says: "keep one"},
		"short key":           {secret: map[string]string{"key": "0123456789abcdef"}, says: "at least 32"},
		"short passphrase":    {secret: map[string]string{"passphrase": "1234567"}, says: "at least 8"},
		"long":                {secret: map[string]string{"passphrase": strings.Repeat("x", 4097)}, says: "at most 4096"},
		"not random":          {secret: map[string]string{"key": strings.Repeat("ab", 32)}, says: "not random"},
		"short previous key":  {secret: map[string]string{"key": random1, "previousKey": "x"}, says: `"previousKey"`},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := ParseSecret(test.secret)
			if test.says != "" {
				if lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(fmt.Sprint(err), test.says) {
					t.Fatalf("error %v, want one that says %q", err, test.says)
				}
				for field, value := range test.secret {
					if strings.Contains(err.Error(), value) && value != "x" || strings.HasPrefix(field, "t") && strings.Contains(err.Error(), field) {
						t.Errorf("the error %v tells what is in the Secret", err)
					}
				}
				return
			}
			if err != nil || string(keys.Current.secret) != test.current || keys.Current.random != test.random {
				t.Fatalf("%v, %v", keys, err)
			}
			if previous := keys.Previous; previous == nil && test.previous != "" || previous != nil && string(previous.secret) != test.previous {
				t.Errorf("previous key %v", previous)
			}
		})
	}
}

func TestKeyIsNotPrinted(t *testing.T) {
	keys, err := ParseSecret(map[string]string{"key": random1})
	must(t, err)
	text, err := json.Marshal(keys)
	must(t, err)
	for _, printed := range []string{string(text), fmt.Sprintf("%v %+v %#v %s", keys, keys, keys, keys.Current), fmt.Sprintf("%v %#v", *keys.Current, *keys.Current), keys.Current.LogValue().String()} {
		if strings.Contains(printed, random1) || strings.Contains(printed, "48, 49, 50") || strings.Contains(printed, "0x30, 0x31") || strings.Contains(printed, "48 49 50") {
			t.Errorf("a key is printed: %s", printed)
		}
	}
}

// TestArguments: no argument depends on a key's bytes, and cryptsetup never prompts for input.
func TestArguments(t *testing.T) {
	v := NewVolume("vg/pvc-1", "AAAAAA-1", "/dev/dm-3")
	keys := func(secret map[string]string) *Key {
		k, err := ParseSecret(secret)
		must(t, err)
		return k.Current
	}
	random, passphrase := keys(map[string]string{"key": random1}), keys(map[string]string{"passphrase": "12345678"})
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"format": {formatArgs(v, random, 4096), "luksFormat --type=luks2 --key-file=- --cipher=aes-xts-plain64 --key-size=512 --sector-size=4096 --offset=32768 " +
			"--luks2-metadata-size=16384 --luks2-keyslots-size=4161536 --uuid=" + uuidOf("AAAAAA-1") + " --subsystem=nodelvm --label=AAAAAA-1 " +
			"--pbkdf=pbkdf2 --hash=sha256 --pbkdf-force-iterations=1000 /dev/dm-3"},
		"add":         {addKeyArgs(v, passphrase), "luksAddKey --key-file=- --pbkdf=argon2id --pbkdf-memory=65536 --pbkdf-force-iterations=4 --pbkdf-parallel=4 /dev/dm-3 /proc/self/fd/4"},
		"open":        {openArgs(v, true, false), "open --type=luks2 --key-file=- --allow-discards /dev/dm-3 " + mappingName("vg/pvc-1")},
		"read-only":   {openArgs(v, false, true), "open --type=luks2 --key-file=- --readonly /dev/dm-3 " + mappingName("vg/pvc-1")},
		"no discards": {openArgs(v, false, false), "open --type=luks2 --key-file=- /dev/dm-3 " + mappingName("vg/pvc-1")},
		"test":        {testArgs(v, 3), "open --type=luks2 --test-passphrase --key-slot=3 --key-file=- /dev/dm-3"},
		"remove":      {removeSlotArgs(v, 3), "luksKillSlot --key-file=- /dev/dm-3 3"},
		"uuid":        {setUUIDArgs(v), "luksUUID --uuid=" + uuidOf("AAAAAA-1") + " /dev/dm-3"},
		"resize":      {resizeArgs(v), "resize --key-file=- " + mappingName("vg/pvc-1")},
	} {
		if got := strings.Join(test.args, " "); got != test.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, test.want)
		}
	}
}

func TestNames(t *testing.T) {
	a, b := mappingName("vg-uuid/pvc-1"), mappingName("vg-uuid/pvc-2")
	if a == b || len(a) != len("nodelvm-luks-")+32 || a != mappingName("vg-uuid/pvc-1") {
		t.Errorf("names %q and %q", a, b)
	}
	if uuid := mappingUUID(uuidOf("x"), a); len(uuid) > 128 {
		t.Errorf("the device-mapper UUID %q is too long", uuid)
	}
	if u := uuidOf("x"); len(u) != 36 || u == uuidOf("y") || u[14] != '8' || !strings.ContainsRune("89ab", rune(u[19])) {
		t.Errorf("UUID %q", u)
	}
}

func TestParseTable(t *testing.T) {
	for params, want := range map[string]Table{
		"aes-xts-plain64 :64:logon:cryptsetup:1-d0 0 254:0 32768 2 allow_discards sector_size:4096": {"crypt", "254:0", lvm.LUKSHeaderSize, false},
		"aes-xts-plain64 - 0 254:0 0": {"crypt", "254:0", 0, true},
	} {
		if got, err := parseTable("crypt", params); err != nil || got != want {
			t.Errorf("%q: %+v, %v", params, got, err)
		}
	}
	if got, err := parseTable("linear", "254:0 0"); err != nil || got.Target != "linear" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, params := range []string{"", "aes secretkey 0 254:0", "aes secretkey 0 254:0 -1", "aes secretkey 0 254:0 9223372036854775807"} {
		if got, err := parseTable("crypt", params); err == nil || strings.Contains(err.Error(), "secretkey") {
			t.Errorf("%q: %+v, %v", params, got, err)
		}
	}
}
