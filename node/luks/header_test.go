package luks

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// fixture returns the header that cryptsetup 2.6.1 writes for formatArgs with a random key.
func fixture(t testing.TB) []byte {
	t.Helper()
	return written(t, "testdata/header-2.6.1.gz")
}

func written(t testing.TB, path string) []byte {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer func() { _ = file.Close() }()
	unzip, err := gzip.NewReader(file)
	must(t, err)
	data, err := io.ReadAll(unzip)
	if err != nil || len(data) != headerBytes {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	return data
}

// sign sets the right checksums of both copies.
func sign(data []byte) []byte {
	for at := 0; at < headerBytes; at += copySize {
		part := data[at : at+copySize]
		clear(part[atChecksum : atChecksum+checksumArea])
		sum := sha256.Sum256(part)
		copy(part[atChecksum:], sum[:])
	}
	return data
}

// replaced returns the fixture with another text in the metadata of the first copies, and right checksums.
func replaced(t testing.TB, copies int, old, text string) []byte {
	t.Helper()
	data := fixture(t)
	for n := range copies {
		area := data[n*copySize+binarySize : (n+1)*copySize]
		content, _, _ := bytes.Cut(area, []byte{0})
		if !bytes.Contains(content, []byte(old)) {
			t.Fatalf("the metadata have no %q: %s", old, content)
		}
		content = bytes.Replace(content, []byte(old), []byte(text), 1)
		clear(area)
		copy(area, content)
	}
	return sign(data)
}

func TestParseHeader(t *testing.T) {
	h := ParseHeader(fixture(t))
	if h.State != HeaderValid || h.Copies != 2 || h.UUID != "11111111-2222-8333-8444-555555555555" || h.Sector != 4096 {
		t.Errorf("%+v", h)
	}
	if len(h.Slots) != 1 || h.Slots[0] != (Slot{Number: 0, Bound: true, Function: "pbkdf2"}) {
		t.Errorf("slots %+v", h.Slots)
	}
	// The image's cryptsetup, with a passphrase.
	h = ParseHeader(written(t, "testdata/header-2.7.5.gz"))
	if h.State != HeaderValid || h.Copies != 2 || len(h.Slots) != 1 || h.Slots[0] != (Slot{Number: 0, Bound: true, Function: "argon2id"}) {
		t.Errorf("%+v", h)
	}
	if h := ParseHeader(make([]byte, headerBytes)); h.State != HeaderNone {
		t.Errorf("zeroes: %+v", h)
	}
}

func TestHeaderRemains(t *testing.T) {
	data := fixture(t)
	clear(data[:len(magicFirst)])
	clear(data[copySize : copySize+len(magicSecond)])
	if h := ParseHeader(data); h.State != HeaderNone || !h.Remains {
		t.Errorf("without signatures: %+v", h)
	}
	data[binarySize-1], data[copySize+binarySize-1] = 1, 1
	if h := ParseHeader(data); h.State != HeaderNone || h.Remains {
		t.Errorf("with other data: %+v", h)
	}
}

func TestHeaderCopies(t *testing.T) {
	for name, test := range map[string]struct {
		change func(data []byte)
		state  HeaderState
		copies int
		says   string
	}{
		"first zero":      {func(d []byte) { clear(d[:copySize]) }, HeaderValid, 1, ""},
		"first damaged":   {func(d []byte) { d[binarySize+5] ^= 1 }, HeaderValid, 1, ""},
		"second damaged":  {func(d []byte) { d[copySize+binarySize+5] ^= 1 }, HeaderValid, 1, ""},
		"both damaged":    {func(d []byte) { d[binarySize+5] ^= 1; d[copySize+binarySize+5] ^= 1 }, HeaderDamaged, 0, "checksum"},
		"magic alone":     {func(d []byte) { clear(d[len(magicFirst)+2:]) }, HeaderForeign, 0, "0 bytes"},
		"version 1":       {func(d []byte) { d[7] = 1 }, HeaderForeign, 0, "version 1"},
		"second later":    {func(d []byte) { d[copySize+atSequence+7]++; copy(d[copySize+atUUID:], "2"); sign(d) }, HeaderValid, 2, ""},
		"huge":            {func(d []byte) { binary.BigEndian.PutUint64(d[atSize:], 1<<62); sign(d) }, HeaderForeign, 0, "4611686018427387904"},
		"another place":   {func(d []byte) { binary.BigEndian.PutUint64(d[atOffset:], 4096); sign(d) }, HeaderForeign, 0, "4096"},
		"other checksum":  {func(d []byte) { copy(d[atAlgorithm:], "sha1\x00\x00"); sign(d) }, HeaderForeign, 0, "sha1"},
		"padding":         {func(d []byte) { d[atPadding] = 1; sign(d) }, HeaderForeign, 0, "data where"},
		"last padding":    {func(d []byte) { d[copySize+binarySize-1] = 1; sign(d) }, HeaderForeign, 0, "data where"},
		"other subsystem": {func(d []byte) { d[atSubsystem] = 'x'; sign(d) }, HeaderForeign, 0, "xodelvm"},
	} {
		t.Run(name, func(t *testing.T) {
			data := fixture(t)
			test.change(data)
			h := ParseHeader(data)
			if h.State != test.state || h.Copies != test.copies || !strings.Contains(h.Reason, test.says) {
				t.Errorf("%+v", h)
			}
			if name == "second later" && !strings.HasPrefix(h.UUID, "2") {
				t.Errorf("not the copy that was written last: %+v", h)
			}
		})
	}
}

// TestHostileMetadata: ParseHeader refuses metadata that an attacker chose, with right checksums.
func TestHostileMetadata(t *testing.T) {
	argon := func(memory, time, cpus string) string {
		return `"kdf":{"type":"argon2id","memory":` + memory + `,"time":` + time + `,"cpus":` + cpus + `,"salt":""}, "x":{`
	}
	const kdf = `"kdf":{`
	for name, test := range map[string]struct{ old, text, says string }{
		"terabytes of memory":      {kdf, argon("4294967295", "4", "4"), "4294967295 KiB"},
		"more memory than allowed": {kdf, argon("65537", "4", "4"), "65537 KiB"},
		"many passes":              {kdf, argon("64", "4294967295", "4"), "4294967295 passes"},
		"many threads":             {kdf, argon("64", "4", "1000"), "1000 threads"},
		"negative memory":          {kdf, argon("-1", "4", "4"), "-1 KiB"},
		"memory in words":          {kdf, argon(`"lots"`, "4", "4"), "lots"},
		"memory as a fraction":     {kdf, argon("6.4e1", "4", "4"), "6.4e1"},
		"memory twice":             {kdf, `"kdf":{"type":"argon2id","memory":4294967295,"memory":64,"time":4,"cpus":4,"salt":""}, "x":{`, "twice"},
		"memory in another case":   {kdf, `"kdf":{"type":"argon2id","memory":4294967295,"Memory":64,"time":4,"cpus":4,"salt":""}, "x":{`, "4294967295"},
		"memory by an escape":      {kdf, `"kdf":{"type":"argon2id","memory":64,"\u006demory":4294967295,"time":4,"cpus":4,"salt":""}, "x":{`, "twice"},
		"many iterations":          {`"iterations":1000`, `"iterations":4294967295`, "4294967295 iterations"},
		"unknown derivation":       {`"type":"pbkdf2"`, `"type":"scrypt"`, "scrypt"},
		"digest iterations":        {`"digests":{"0":{"type":"pbkdf2",`, `"digests":{"0":{"type":"pbkdf2","iterations":4294967295,"x":1},"1":{`, "2 digests"},
		"digest type":              {`"digests":{"0":{"type":"pbkdf2"`, `"digests":{"0":{"type":"sha256"`, `"sha256" instead of pbkdf2`},
		"metadata size":            {`"json_size":"12288"`, `"json_size":"4096"`, "metadata size 4096 instead of 12288"},
		"token":                    {`"tokens":{}`, `"tokens":{"0":{"type":"systemd-tpm2","keyslots":["0"]}}`, "token"},
		"data over the header":     {`"offset":"16777216"`, `"offset":"4096"`, "4096"},
		"data elsewhere":           {`"offset":"16777216"`, `"offset":"16777217"`, "16777217"},
		"part of the data":         {`"size":"dynamic"`, `"size":"512"`, "not all"},
		"null cipher":              {`"encryption":"aes-xts-plain64","sector`, `"encryption":"cipher_null-ecb","sector`, "cipher_null"},
		"sector size":              {`"sector_size":4096`, `"sector_size":3`, "sector size"},
		"slot over the data":       {`"offset":"32768"`, `"offset":"16777216"`, "outside"},
		"slot that overflows":      {`"offset":"32768"`, `"offset":"9223372036854775807"`, "outside"},
		"slots over the data":      {`"keyslots_size":"4161536"`, `"keyslots_size":"16777216"`, "16777216 bytes of key slots"},
		"key slot that any opens":  {`"encryption":"aes-xts-plain64","key_size":64`, `"encryption":"cipher_null-ecb","key_size":64`, `cipher "cipher_null-ecb"`},
		"short key of the area":    {`"encryption":"aes-xts-plain64","key_size":64`, `"encryption":"aes-xts-plain64","key_size":0`, "of its area 0"},
		"weak hash":                {`"type":"pbkdf2","hash":"sha256"`, `"type":"pbkdf2","hash":"crc32"`, `"crc32"`},
		"few iterations":           {`"iterations":1000`, `"iterations":1`, "1 iterations"},
		"flags":                    {`"config":{`, `"config":{"flags":["allow-discards"],`, "flags"},
		"stripes":                  {`"stripes":4000`, `"stripes":400000000`, "type"},
		"requirements":             {`"config":{`, `"config":{"requirements":{"mandatory":["online-reencrypt"]},`, "features"},
		"slot number":              {`"keyslots":{"0"`, `"keyslots":{"16"`, `"16"`},
		"slot number again":        {`"keyslots":{"0"`, `"keyslots":{"00"`, `"00"`},
		"nothing":                  {`{"keyslots"`, `{}`, "data after"},
		"not JSON":                 {`{"keyslots"`, `{keyslots`, "JSON"},
		"not ASCII":                {`"keyslots"`, "\"keyslots\xff\"", "ASCII"},
		"deep":                     {`"tokens":{}`, `"tokens":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "deeply"},
	} {
		t.Run(name, func(t *testing.T) {
			for copies := 1; copies <= 2; copies++ { // cryptsetup could take either copy
				h := ParseHeader(replaced(t, copies, test.old, test.text))
				if h.State != HeaderForeign || !strings.Contains(h.Reason, test.says) {
					t.Errorf("%d copies: %+v, want a reason that says %q", copies, h, test.says)
				}
			}
		})
	}
}

// TestEveryFieldIsChecked: the driver refuses the metadata if one field has another value or is missing, or an object has one more.
func TestEveryFieldIsChecked(t *testing.T) {
	content, _, _ := bytes.Cut(fixture(t)[binarySize:copySize], []byte{0})
	var metadata any
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	must(t, decoder.Decode(&metadata))
	changes := 0
	check := func(what string) {
		changes++
		text, err := json.Marshal(metadata)
		must(t, err)
		if h := ParseHeader(replaced(t, 2, string(content), string(text))); h.State == HeaderValid {
			t.Errorf("%s: %+v", what, h)
		}
	}
	var visit func(path string, node map[string]any)
	visit = func(path string, node map[string]any) {
		node["unknown"] = true
		check("another field in " + path)
		delete(node, "unknown")
		for key, value := range node {
			at := path + "." + key
			delete(node, key)
			check(at + " is missing")
			switch v := value.(type) {
			case map[string]any:
				node[key] = v
				visit(at, v)
			case json.Number:
				node[key] = json.Number("1" + v.String() + "00000")
				check(at + " is larger")
				node[key] = v.String()
				check(at + " is a text")
			default:
				node[key] = "x"
				check(at + " is another text")
			}
			node[key] = value
		}
	}
	visit("", metadata.(map[string]any))
	if changes < 60 {
		t.Errorf("only %d changes", changes)
	}
}

// TestHeaderThatAnAdminChanged: the driver opens what cryptsetup writes with the driver's arguments, and beside it a slot with cryptsetup's defaults
// that is excluded. In the second header the slots were erased.
func TestHeaderThatAnAdminChanged(t *testing.T) {
	h := ParseHeader(written(t, "testdata/changed-2.6.1.gz"))
	if h.State != HeaderValid || len(h.Slots) != 3 || len(usable(h.Slots)) != 2 || !h.Slots[0].Ignored || h.UUID != "22222222-2222-8333-8444-555555555555" {
		t.Errorf("%+v", h)
	}
	if h := ParseHeader(written(t, "testdata/erased-2.6.1.gz")); h.State != HeaderNoKeys {
		t.Errorf("%+v", h)
	}
}

// argon2id is a key derivation with some KiB of memory.
func argon2id(memory string) string {
	return `"kdf":{"type":"argon2id","memory":` + memory + `,"time":4,"cpus":4,"salt":"YP34kF3RKrBbJt5mzKkBc9c/LEAuo0+y+MJ58NxU/9o="}`
}

func TestSlots(t *testing.T) {
	for name, test := range map[string]struct {
		old, text string
		state     HeaderState
		slots     int
	}{
		"unbound":                       {`"digests":{"0":{"type":"pbkdf2","keyslots":["0"]`, `"digests":{"0":{"type":"pbkdf2","keyslots":[]`, HeaderNoKeys, 0},
		"ignored":                       {`"type":"luks2"`, `"type":"luks2","priority":0`, HeaderNoKeys, 0},
		"preferred":                     {`"type":"luks2"`, `"type":"luks2","priority":2`, HeaderValid, 1},
		"ignored, of unacceptable cost": {"", argon2id("4294967295") + `,"priority":0`, HeaderNoKeys, 0},
		"argon2id within the limits":    {"", argon2id("65536"), HeaderValid, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if test.old == "" {
				test.old = string(regexp.MustCompile(`"kdf":\{[^}]*\}`).Find(fixture(t)))
			}
			h := ParseHeader(replaced(t, 2, test.old, test.text))
			if h.State != test.state || len(usable(h.Slots)) != test.slots {
				t.Errorf("%+v", h)
			}
		})
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(fixture(f), true)
	f.Add(replaced(f, 1, `"iterations":1000`, `"iterations":4294967295`), false)
	f.Add([]byte(magicFirst), false)
	f.Fuzz(func(t *testing.T, data []byte, signed bool) {
		if signed && len(data) >= headerBytes {
			sign(data)
		}
		h := ParseHeader(data)
		if h.State == HeaderValid && (len(usable(h.Slots)) == 0 || h.Copies == 0 || h.Sector != 512 && h.Sector != 4096) {
			t.Errorf("%+v", h)
		}
		if h.State != HeaderValid && h.State != HeaderNone && h.State != HeaderNoKeys && h.Reason == "" {
			t.Errorf("no reason: %+v", h)
		}
	})
}

// FuzzParseObject: an accepted object has each key once, and is small.
func FuzzParseObject(f *testing.F) {
	f.Add([]byte(`{"a":{"b":["1",2,null,true]}}` + "\x00\x00"))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, area []byte) {
		o, err := parseObject(area)
		if err == nil && o == nil {
			t.Error("neither an object nor an error")
		}
		if o.number("a") < -1 {
			t.Errorf("%v", o)
		}
	})
}
