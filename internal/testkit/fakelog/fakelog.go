// Package fakelog writes access logs of a site with many clients: the same lines for the same seed.
package fakelog

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"
)

// Options of a log.
type Options struct {
	Lines    int
	Keys     int // addresses; each comes up in twice their number of lines
	Seed     uint64
	Combined bool      // in the combined format of nginx, in place of Caddy's JSON
	Start    time.Time // default: 2024-05-01
	Rate     float64   // requests a second. Default: 1000
}

// agents are browsers and programs.
var agents = []string{
	"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Safari/537.36",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15",
	"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:125.0) Gecko/20100101 Firefox/125.0",
	"curl/8.7.1",
	"python-requests/2.31.0",
}

// statuses of answers: most are 200.
var statuses = []int{200, 200, 200, 200, 200, 200, 304, 301, 404, 500}

// Write writes a log to w. Half of its requests come from few of the addresses.
func Write(w io.Writer, o Options) error {
	if o.Start.IsZero() {
		o.Start = time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)
	}
	if o.Rate == 0 {
		o.Rate = 1000
	}
	r := rand.New(rand.NewPCG(o.Seed, 42)) // #nosec G404 -- it is to be the same for a seed
	busy := rand.NewZipf(r, 1.2, 8, uint64(max(o.Keys-1, 1)))
	at := o.Start.UnixNano()
	b := make([]byte, 0, 64<<10)
	for i := range o.Lines {
		at += int64(r.ExpFloat64() * 1e9 / o.Rate)
		key := i / 2
		if i%2 == 0 {
			key = int(busy.Uint64()) // #nosec G115 -- below Keys
		}
		key %= o.Keys
		l := line{at: at, address: address(key), path: r.IntN(500), agent: agents[key%len(agents)], status: statuses[r.IntN(len(statuses))], size: r.IntN(50_000), took: int64(r.ExpFloat64() * 5e6)}
		if o.Combined {
			b = l.combined(b)
		} else {
			b = l.caddy(b)
		}
		if len(b) > 60<<10 || i == o.Lines-1 {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	return nil
}

// line is a request.
type line struct {
	at      int64 // when it ended, in ns
	took    int64
	address string
	agent   string
	path    int
	status  int
	size    int
}

// address returns the i-th address.
func address(i int) string {
	return fmt.Sprintf("%d.%d.%d.%d", 11+i>>24&63, i>>16&255, i>>8&255, i&255)
}

// caddy appends the line as Caddy 2.11 writes it.
func (l *line) caddy(b []byte) []byte {
	b = append(b, `{"level":"info","ts":`...)
	b = strconv.AppendFloat(b, float64(l.at)/1e9, 'f', -1, 64)
	b = append(b, `,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"`...)
	b = append(b, l.address...)
	b = append(b, `","remote_port":"`...)
	b = strconv.AppendInt(b, 1024+l.at%60000, 10)
	b = append(b, `","client_ip":"`...)
	b = append(b, l.address...)
	b = append(b, `","proto":"HTTP/2.0","method":"GET","host":"example.com","uri":"/articles/`...)
	b = strconv.AppendInt(b, int64(l.path), 10)
	b = append(b, `?page=`...)
	b = strconv.AppendInt(b, int64(l.path%7), 10)
	b = append(b, `","headers":{"User-Agent":["`...)
	b = append(b, l.agent...)
	b = append(b, `"],"Accept":["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],"Accept-Language":["en-US,en;q=0.5"],"Accept-Encoding":["gzip, deflate, br"],"Sec-Ch-Ua":["\"Chromium\";v=\"124\""],"Cookie":["REDACTED"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read":0,"user_id":"","duration":`...)
	b = strconv.AppendFloat(b, float64(l.took)/1e9, 'f', -1, 64)
	b = append(b, `,"size":`...)
	b = strconv.AppendInt(b, int64(l.size), 10)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(l.status), 10)
	return append(b, `,"resp_headers":{"Server":["Caddy"],"Alt-Svc":["h3=\":443\"; ma=2592000"],"Content-Type":["text/html; charset=utf-8"]}}`+"\n"...)
}

// combined appends the line as nginx writes it.
func (l *line) combined(b []byte) []byte {
	b = append(b, l.address...)
	b = append(b, " - - ["...)
	b = time.Unix(0, l.at).UTC().AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "GET /articles/`...)
	b = strconv.AppendInt(b, int64(l.path), 10)
	b = append(b, ` HTTP/1.1" `...)
	b = strconv.AppendInt(b, int64(l.status), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(l.size), 10)
	b = append(b, ` "https://example.com/" "`...)
	b = append(b, l.agent...)
	return append(b, "\"\n"...)
}
