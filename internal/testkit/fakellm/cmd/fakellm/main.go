// Command fakellm serves the APIs of OpenAI and Anthropic without a model:
//
//	go run ./internal/testkit/fakellm/cmd/fakellm -listen :9000 -pace 50ms
//	curl -N 'localhost:9000/v1/messages?output=5' -d '{"stream":true}'
//
// The documentation of package fakellm lists what a query may ask for.
package main

import (
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakellm"
)

func main() {
	listen := flag.String("listen", "localhost:9000", "the address to serve on")
	pace := flag.Duration("pace", 50*time.Millisecond, "the time between two events of a stream")
	flag.Parse()
	server := &http.Server{Addr: *listen, Handler: fakellm.Handler(*pace), ReadHeaderTimeout: 10 * time.Second}
	log.Printf("serving /v1/chat/completions, /v1/responses and /v1/messages on %s", *listen)
	log.Fatal(server.ListenAndServe())
}
