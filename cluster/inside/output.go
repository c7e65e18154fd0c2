package inside

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"slipway/cluster/pod"
)

// maxLine caps a line's length in bytes, as on a single machine. The rest is dropped.
const maxLine = 16 << 10

// output writes the pod's log.
type output struct {
	mu sync.Mutex // held while a line is written
}

// carry copies a stream of the program to the log line by line until its end.
func (o *output) carry(stream string, from io.ReadCloser) {
	defer from.Close()
	r := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := r.ReadSlice('\n')
		text := string(bytes.TrimRight(line, "\r\n"))
		if errors.Is(err, bufio.ErrBufferFull) {
			text += "…"
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = r.ReadSlice('\n')
			}
		}
		if len(line) > 0 {
			o.print(stream, strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", ""))
		}
		if err != nil {
			return
		}
	}
}

func (o *output) print(stream, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = io.WriteString(os.Stdout, pod.Mark(stream, text)+"\n")
}

// say logs a message of Slipway's for the user.
func (o *output) say(text string) { o.print("stderr", "slipway: "+text) }
