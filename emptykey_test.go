package slidingwindow

import (
	"net/http"
	"testing"
)

// Nobody but a trusted proxy says who the client is.
func TestForwardedForChangesNothing(t *testing.T) {
	h, _ := newHandler(t, zoneHandler(t, `"limits":[{"max":1,"window":"1h"}]`, ""))
	for i, from := range []string{"198.51.100.1", "198.51.100.2", "192.0.2.1, 198.51.100.3"} {
		w := serve(t, get("X-Forwarded-For", from, "X-Real-Ip", from, "Forwarded", "for="+from), h)
		want := http.StatusTooManyRequests
		if i == 0 {
			want = http.StatusNoContent
		}
		if w.Code != want {
			t.Errorf("X-Forwarded-For %s: got %d, want %d", from, w.Code, want)
		}
	}
}

func TestEmptyKey(t *testing.T) {
	const key = `"key":"{http.request.header.X-Key}","limits":[{"max":1,"window":"1h"}]`
	for _, c := range []struct {
		word string
		want []int // of two requests without a key, then two with one
	}{
		{"", []int{204, 429, 204, 429}},
		{"shared", []int{204, 429, 204, 429}},
		{"skip", []int{204, 204, 204, 429}},
		{"deny", []int{429, 429, 204, 429}},
	} {
		t.Run(c.word, func(t *testing.T) {
			h, _ := newHandler(t, zoneHandler(t, key+`,"empty_key":"`+c.word+`"`, ""))
			for i, want := range c.want {
				r := get()
				if i >= 2 {
					r = get("X-Key", "k")
				}
				w := serve(t, r, h)
				if w.Code != want {
					t.Errorf("request %d: got %d, want %d", i+1, w.Code, want)
				}
				if c.word == "deny" && i < 2 {
					if got := w.Header().Get("Retry-After"); got != "" {
						t.Errorf("Retry-After: got %s, want none: no waiting helps", got)
					}
					if got := w.Header().Get("RateLimit"); got != "" {
						t.Errorf("RateLimit: got %s, want none", got)
					}
				}
			}
		})
	}
}

// A request that one zone denies for want of a key costs nothing in another.
func TestDeniedForWantOfAKeyCostsNothing(t *testing.T) {
	h, _ := newHandler(t, `{"zones":[
		{"name":"want_first","limits":[{"max":1,"window":"1h"}]},
		{"name":"want_second","key":"{http.request.header.X-Key}","empty_key":"deny","limits":[{"max":9,"window":"1h"}]}
	]}`)
	if w := serve(t, get(), h); w.Code != http.StatusTooManyRequests {
		t.Errorf("without a key: got %d, want 429", w.Code)
	}
	if w := serve(t, get("X-Key", "k"), h); w.Code != http.StatusNoContent {
		t.Errorf("with a key: got %d, want 204", w.Code)
	}
}
