package control

import (
	"testing"
	"time"
)

// A time is exact, of today where now is, or so long ago; and it is over.
func TestParseSince(t *testing.T) {
	now := time.Date(2026, 12, 31, 15, 30, 0, 500_000_000, time.FixedZone("CET", 3600))
	for text, want := range map[string]string{
		"2026-12-31T14:00:00Z": "2026-12-31T14:00:00Z", "2026-12-31T14:00:00.123Z": "2026-12-31T14:00:00.123Z", "2026-12-30T14:00:00+01:00": "2026-12-30T13:00:00Z",
		"14:00": "2026-12-31T13:00:00Z", "00:00": "2026-12-30T23:00:00Z", "15:30": "2026-12-31T14:30:00Z",
		"30m": "2026-12-31T14:00:00.5Z", "1d": "2026-12-30T14:30:00.5Z", "0s": "2026-12-31T14:30:00.5Z",
		"15:31": "", "-1s": "", "2027-01-01T00:00:00Z": "", "24:00": "", "yesterday": "", "": "", "14": "",
	} {
		got, err := ParseSince(text, now)
		if (err == nil) != (want != "") || err == nil && got.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%q: got %s, %v, want %q", text, got.UTC().Format(time.RFC3339Nano), err, want)
		}
	}
}
