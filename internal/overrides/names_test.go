package overrides

import (
	"errors"
	"testing"
)

func TestCheckNames(t *testing.T) {
	for body, want := range map[string]error{
		`{"key":"a","key":"b"}`:                     ErrTwice,
		`{"key":"a","KEY":"b"}`:                     ErrTwice,
		`{"a":{"b":1},"a":2}`:                       ErrTwice,
		`[{"a":1},{"a":1,"b":[],"b":1}]`:            ErrTwice,
		`{"a":{"b":{"c":[{"x":1,"y":2,"x":3}]}}}`:   ErrTwice,
		`{"a":[1,"a","a"],"b":"a","c":{"a":"b"}}`:   nil,
		`[{"a":1},{"a":1}]`:                         nil,
		`{"a":{"b":1},"c":{"b":1},"d":[{"b":[1]}]}`: nil,
		`{"a":1}{"a":1}`:                            nil,
		`"a"`:                                       nil,
		``:                                          nil,
		`{"a":`:                                     nil,
		`}{`:                                        nil,
	} {
		if got := CheckNames([]byte(body)); !errors.Is(got, want) {
			t.Errorf("%s: got %v, want %v", body, got, want)
		}
	}
}
