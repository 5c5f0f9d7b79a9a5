package redistest

import (
	"fmt"
	"strings"
)

// What a client sends to a Sentinel of the master "main".
const (
	AskAddress = "*3\r\n$8\r\nsentinel\r\n$23\r\nget-master-addr-by-name\r\n$4\r\nmain\r\n"
	Subscribe  = "*2\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n"
)

// Texts is a reply of texts.
func Texts(all ...string) string {
	reply := fmt.Sprintf("*%d", len(all))
	for _, text := range all {
		reply += fmt.Sprintf("\r\n$%d\r\n%s", len(text), text)
	}
	return reply
}

// OddReplies are of all forms, most of which no server gives to a script.
var OddReplies = []string{
	"*9223372036854775807\r\n", "*2147483647\r\n:1\r\n", "*-1\r\n", "*0\r\n", "*-2\r\n", "*x\r\n",
	"$9223372036854775807\r\n", "$-1\r\n", "$3\r\nabc\r\n", "$0\r\n\r\n", "=9\r\ntxt:abcde\r\n",
	":1\r\n", "+OK\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(12345678901234567890\r\n", "\r\n", "\n",
	"%1\r\n+a\r\n:1\r\n", "|1\r\n+a\r\n:1\r\n*0\r\n", "~1\r\n:1\r\n", ">2\r\n+message\r\n+x\r\n*0\r\n", "%4611686018427387904\r\n",
	strings.Repeat("*1\r\n", 100),
	"-ERR\r\n", "-NOSCRIPT\r\n", "-MOVED 1 127.0.0.1:1\r\n", "-ASK\r\n", "-MOVED\r\n", "-LOADING\r\n", "-NOPERM x\r\n", "-\r\n", "-ERR unknown command\r\n",
	"!5\r\nERR x\r\n",
}
