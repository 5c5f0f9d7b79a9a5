package jsonform

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
)

// errKind refuses a value that is not of the kind of its option, and says how it is written.
func (c checker) errKind(path string, raw json.RawMessage, t reflect.Type) error {
	if c.quiet {
		return errWrong
	}
	name := path
	if path == "" {
		name = "sliding_window"
	}
	return fmt.Errorf("%s is %s%s", name, kindOf(t), cureOf(": ", path, raw, t))
}

// cureOf returns the value as it was probably meant, after a sign, or an example of the option.
func cureOf(sign, path string, raw json.RawMessage, t reflect.Type) string {
	if isSecret(path, raw) {
		return suchAs(", such as", path)
	}
	if meant := meantBy(path, raw, t); meant != nil {
		return sign + shown(meant)
	}
	return suchAs(", such as", path)
}

// suchAs returns an example of an option after some words.
func suchAs(words, path string) string {
	if value := exampleAt(path); value != nil {
		return words + " " + shown(value)
	}
	return ""
}

// isSecret reports whether a value may hold a secret, which errors must not show.
func isSecret(path string, raw json.RawMessage) bool {
	name := path[strings.LastIndexByte(path, '.')+1:]
	for _, secret := range []string{"password", "hash_keys", "username", "url"} {
		if strings.Contains(name, secret) {
			return true
		}
	}
	return strings.ContainsAny(string(raw), "@") || strings.Contains(string(raw), "://")
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		if t == reflect.TypeFor[json.RawMessage]() {
			return "an object"
		}
		return "a list"
	}
	return "an object"
}

// meantBy returns a value of another kind as one of type t; nil if it cannot say which.
func meantBy(path string, raw json.RawMessage, t reflect.Type) json.RawMessage {
	if t != reflect.TypeFor[json.RawMessage]() && fits(raw, t) { // a store may hold secrets
		return raw
	}
	words := wordsOf(raw)
	switch t.Kind() {
	case reflect.Pointer:
		return meantBy(path, raw, t.Elem())
	case reflect.Struct:
		return structOf(path, raw, words, fieldsOf(t))
	case reflect.Slice:
		return listOf(path, raw, words, t)
	}
	if len(words) != 1 {
		return nil
	}
	return scalarOf(path, words[0], t)
}

// fits reports whether a value is one of type t, with members that there are.
func fits(raw json.RawMessage, t reflect.Type) bool {
	return string(raw) != "{}" && (checker{t, true}).check("", raw, t, "") == nil && string(raw) != "null"
}

// wordsOf returns the words of a text, a number, true or false, or a list of these; nil for others.
func wordsOf(raw json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		var words []string
		for _, value := range list {
			words = append(words, wordsOf(value)...)
		}
		return words
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return strings.Fields(text)
	}
	if _, ok := membersOf(raw); ok {
		return nil
	}
	return []string{string(raw)}
}

// listOf puts one value into a list.
func listOf(path string, raw json.RawMessage, words []string, t reflect.Type) json.RawMessage {
	elem := t.Elem()
	if t == reflect.TypeFor[json.RawMessage]() {
		if len(words) == 1 && words[0] != "true" && words[0] != "false" {
			return json.RawMessage(`{"module":` + strconv.Quote(words[0]) + `}`)
		}
		return nil
	}
	if fits(raw, elem) {
		return json.RawMessage("[" + string(raw) + "]")
	}
	if meant := meantBy(path, raw, elem); meant != nil {
		return json.RawMessage("[" + string(meant) + "]")
	}
	return nil
}

// structOf spreads words over the required fields of an object, or its first one.
func structOf(path string, raw json.RawMessage, words []string, fields fields) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) == 1 {
		if _, ok := membersOf(list[0]); ok {
			return list[0]
		}
	}
	names := fields.required()
	if len(words) == 1 && len(names) == 2 {
		if l, ok := quantity.InOneWord(words[0]); ok {
			words = []string{l.Max, l.Window}
		}
	}
	if len(words) != len(names) || words[0] == "true" || words[0] == "false" || words[0] == "null" {
		return nil
	}
	var text strings.Builder
	for i, name := range names {
		f, _ := fields.named(name)
		value := scalarOf(join(path, name), words[i], f.Type)
		if value == nil {
			value = meantBy(join(path, name), json.RawMessage(words[i]), f.Type)
		}
		if value == nil {
			return nil
		}
		fmt.Fprintf(&text, "%q:%s,", name, value)
	}
	return json.RawMessage("{" + strings.TrimSuffix(text.String(), ",") + "}")
}

// scalarOf returns a word as a value of type t; nil if it cannot be one.
func scalarOf(path, word string, t reflect.Type) json.RawMessage {
	quoted, _ := json.Marshal(word)
	switch t.Kind() {
	case reflect.Bool:
		switch strings.ToLower(word) {
		case "true", "yes", "on", "1":
			return json.RawMessage("true")
		case "false", "no", "off", "0":
			return json.RawMessage("false")
		}
	case reflect.Int, reflect.Int64:
		if n, err := quantity.Int(strings.TrimSuffix(word, ";")); err == nil {
			return json.RawMessage(strconv.FormatInt(n, 10))
		}
	case reflect.Float64:
		if share, err := quantity.Percent(word); err == nil {
			return json.RawMessage(strconv.FormatFloat(share, 'f', -1, 64))
		}
		if n, err := strconv.ParseFloat(word, 64); err == nil && n-n == 0 {
			return json.RawMessage(strconv.FormatFloat(n, 'f', -1, 64))
		}
	case reflect.String:
		return stringOf(path, word, quoted, t)
	}
	return nil
}

// stringOf does so for a text. A number where the example has a percentage gets its sign; true and false are words
// of other products.
func stringOf(path, word string, quoted json.RawMessage, t reflect.Type) json.RawMessage {
	_, err := quantity.Int(word)
	switch {
	case word == "true" || word == "false":
		option := path[strings.LastIndexByte(path, '.')+1:]
		if meant, ok := strings.CutPrefix(foreign.Meaning(option, word), "write "); ok {
			return json.RawMessage(strconv.Quote(meant))
		}
		return nil
	case err == nil && strings.HasSuffix(string(exampleAt(path)), `%"`):
		return json.RawMessage(strconv.Quote(word + "%"))
	case err == nil && t != reflect.TypeFor[string](): // of the type Value
		return json.RawMessage(word)
	}
	return quoted
}
