package luks

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
)

// object is a JSON object in which each key occurs once. encoding/json with a struct ignores case and uses the last of two equal
// keys; cryptsetup's parser could then see another value than the driver.
type object map[string]any

// maxDepth is above that of the driver's own headers, 4.
const maxDepth = 8

// parseObject parses the JSON area: ASCII text, then zeroes.
func parseObject(area []byte) (object, error) {
	content, rest, _ := bytes.Cut(area, []byte{0})
	if !isZero(rest) {
		return nil, errors.New("it has data after its metadata")
	}
	for _, c := range content {
		if c >= 0x80 {
			return nil, errors.New("its metadata are not ASCII")
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	value, err := parseValue(decoder, 0)
	if err != nil {
		return nil, fmt.Errorf("its metadata are not valid JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has data after its metadata")
	}
	o, is := value.(object)
	if !is {
		return nil, errors.New("its metadata are not a JSON object")
	}
	return o, nil
}

func parseValue(decoder *json.Decoder, depth int) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	delim, is := token.(json.Delim)
	switch {
	case !is:
		return token, nil
	case depth == maxDepth:
		return nil, errors.New("it is nested too deeply")
	case delim == '{':
		return parseMembers(decoder, depth)
	}
	var list []any
	for decoder.More() {
		value, err := parseValue(decoder, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	_, err = decoder.Token() // the end of the list
	return list, err
}

func parseMembers(decoder *json.Decoder, depth int) (object, error) {
	o := object{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		key, is := token.(string)
		if !is {
			return nil, fmt.Errorf("key %v is not a string", token)
		}
		if _, twice := o[key]; twice {
			return nil, fmt.Errorf("key %q occurs twice", key)
		}
		if o[key], err = parseValue(decoder, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := decoder.Token() // the end of the object
	return o, err
}

// checkFields refuses an object with other fields than these.
func (o object) checkFields(what string, fields ...string) error {
	for _, field := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(fields, field) {
			return fmt.Errorf("its %s has the field %q, which the driver does not write", what, field)
		}
	}
	return nil
}

// object, text, texts, number and size return a zero value, or -1, for what is missing or of another type; the caller refuses that.
func (o object) object(key string) object {
	value, _ := o[key].(object)
	return value
}

func (o object) text(key string) string {
	value, _ := o[key].(string)
	return value
}

// texts returns a list of texts. Anything else in it becomes "".
func (o object) texts(key string) (list []string) {
	values, _ := o[key].([]any)
	for _, value := range values {
		text, _ := value.(string)
		list = append(list, text)
	}
	return list
}

// number returns -1 for anything but a whole number from 0 on.
func (o object) number(key string) int64 {
	value, _ := o[key].(json.Number)
	return whole(value.String())
}

// size returns a number that cryptsetup writes as a text: an offset or a size.
func (o object) size(key string) int64 { return whole(o.text(key)) }

func whole(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return -1
	}
	return n
}

// isBytes reports whether a field has that many bytes in base64.
func (o object) isBytes(key string, size int) bool {
	data, err := base64.StdEncoding.Strict().DecodeString(o.text(key))
	return err == nil && len(data) == size
}
