package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"
)

// What a terminal gets means the same, and has nothing in it that the terminal could obey.
func TestEscapeJSON(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r < 0x3000 || r >= 0xd800 && r < 0x10000 || r >= 0xe0000 && r < 0xe0200 { // among them all control and format characters below and above 0xffff
			all.WriteRune(r)
		}
	}
	text, err := json.Marshal(map[string]string{"key": all.String()})
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	escaped := escapeJSON(text)
	for _, r := range string(escaped) {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%U reaches the terminal", r)
		}
	}
	var got map[string]string
	if err := json.Unmarshal(escaped, &got); err != nil || got["key"] != all.String() {
		t.Errorf("it means something else: %v", err)
	}
	for raw, want := range map[string]string{
		"{\"a\":\"b\u00e9\\u0000\"}\n": "{\"a\":\"b\u00e9\\u0000\"}\n",
		"\"\u009b2J\"":                 `"\u009b2J"`, "\"\u202e\"": `"\u202e"`, "\"\U000e0001\"": `"\udb40\udc01"`,
		"\x9b31m\x1b[2J": `\ufffd31m\u001b[2J`,
	} {
		if got := string(escapeJSON([]byte(raw))); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if got := jsonFor(file, text); string(got) != string(text) {
		t.Error("what a file gets is not what the admin endpoint answered")
	}
}
