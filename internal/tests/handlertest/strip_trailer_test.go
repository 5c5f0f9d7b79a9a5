package handlertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// The client sees no trailer with a field that strip removes, over HTTP/1.1 and 2, whether the back end announces the
// trailer or not. The trailer is not announced either.
func TestStripOfTrailers(t *testing.T) {
	h, _ := New(t, OfZone(t, `"limits":[{"max":1000,"window":"1h"}],"cost":10,"settle":{"header":"x-units","strip":true}`, ""))
	for _, http2 := range []bool{false, true} {
		for _, announced := range []bool{false, true} {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err := AnswerWith(h, w, r, func(w http.ResponseWriter, _ *http.Request) error {
					prefix := http.TrailerPrefix
					if announced {
						prefix = ""
						w.Header().Add("Trailer", "X-Sum, X-Units")
						w.Header().Add("Trailer", "X-Last")
					}
					_, err := io.WriteString(w, "text")
					_ = http.NewResponseController(w).Flush()
					for _, name := range []string{"X-Sum", "X-Units", "X-Last"} {
						w.Header()[prefix+name] = []string{"30"}
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			resp, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			_, toldOf := resp.Trailer["X-Units"]
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			server.Close()
			if _, told := resp.Trailer["X-Units"]; told || toldOf || resp.Header["X-Units"] != nil {
				t.Errorf("HTTP/2 %v, announced %v: X-Units is in %v", http2, announced, resp.Trailer)
			}
			if resp.Trailer.Get("X-Sum") != "30" || resp.Trailer.Get("X-Last") != "30" || resp.ProtoMajor == 2 != http2 {
				t.Errorf("HTTP/2 %v, announced %v: got the trailers %v over %s", http2, announced, resp.Trailer, resp.Proto)
			}
		}
	}
}
