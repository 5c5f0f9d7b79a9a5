package resp

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// FuzzIntegers reads what other programs may have written. What is read must be what was written, in any of the forms.
func FuzzIntegers(f *testing.F) {
	for _, text := range []string{"", "\x00\x7f", "\xcc\xff", "\xcd\x01\x00", "\xce\x00\x01\x00\x00", "\xcf\x00\x00\x00\x01\x00\x00\x00\x00",
		"\xd0\x05", "\xd0\xff", "\xd1\x01\x00", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "\xcd\x01", "\xa1a", "\xc0", "\xcb\x00\x00\x00\x00\x00\x00\x00\x00", "\xe0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, ok := Integers(text)
		if !ok {
			if all != nil {
				t.Errorf("%q: %v, although it is refused", text, all)
			}
			return
		}
		var long []byte
		for _, n := range all {
			if n < 0 {
				t.Fatalf("%q has %d", text, n)
			}
			long = binary.BigEndian.AppendUint64(append(long, 0xd3), uint64(n))
		}
		if again, ok := Integers(string(long)); !ok || !slices.Equal(again, all) {
			t.Errorf("%q: %v, and written again %v", text, all, again)
		}
	})
}

func TestIntegers(t *testing.T) {
	text := "\x00\x7f\xcc\xff\xcd\x01\x00\xce\xff\xff\xff\xff\xcf\x7f\xff\xff\xff\xff\xff\xff\xff\xd0\x7f\xd1\x01\x02\xd2\x00\x01\x00\x00\xd3\x00\x00\x00\x00\x00\x00\x00\x05"
	want := []int64{0, 127, 255, 256, math.MaxUint32, math.MaxInt64, 127, 258, 65536, 5}
	if got, ok := Integers(text); !ok || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, ok, want)
	}
	for _, bad := range []string{"\xd0\x80", "\xd3\xff\xff\xff\xff\xff\xff\xff\xff", "\xcf\x80\x00\x00\x00\x00\x00\x00\x00", "\xff", "\x80", "\xce\x00\x00\x00", "\x05\xc3"} {
		if got, ok := Integers(bad); ok {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
