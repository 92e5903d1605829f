package luks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	if len(bytes.Trim(rest, "\x00")) > 0 {
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

// object, text and number return a zero value for what is missing or of another type; the limits refuse that.
func (o object) object(key string) object {
	value, _ := o[key].(object)
	return value
}

func (o object) text(key string) string {
	value, _ := o[key].(string)
	return value
}

// number returns -1 for anything but a whole number from 0 on: cryptsetup writes small ones as numbers, offsets as strings.
func (o object) number(key string) int64 {
	var digits string
	switch value := o[key].(type) {
	case json.Number:
		digits = value.String()
	case string:
		digits = value
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return -1
	}
	return n
}

func (o object) list(key string) []any {
	value, _ := o[key].([]any)
	return value
}
