package quantity

import (
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// ParseDuration is caddy.ParseDuration, which knows d for days, with w for weeks.
func ParseDuration(s string) (time.Duration, error) {
	end := strings.IndexByte(s, 'w')
	if end < 0 {
		return caddy.ParseDuration(s)
	}
	start := end
	for start > 0 && (s[start-1] >= '0' && s[start-1] <= '9' || s[start-1] == '.') {
		start--
	}
	weeks, err := strconv.ParseFloat(s[start:end], 64)
	if err != nil {
		return 0, err
	}
	return caddy.ParseDuration(s[:start] + strconv.FormatFloat(weeks*7*24, 'f', -1, 64) + "h" + s[end+1:])
}
