package inside

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"slipway/cluster/pod"
)

// maxLine is how many bytes of a line are passed on, as on one machine; the rest of it is dropped.
const maxLine = 16 << 10

// output writes the pod's log.
type output struct {
	mu sync.Mutex // held while a line is written
}

// carry passes a stream of the program on, line by line, until its end.
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

// say tells the user something of ours.
func (o *output) say(text string) { o.print("stderr", "slipway: "+text) }

// field reads a number behind a word of a file, as cgroups have them; a file with a number alone has
// the word "".
func field(name, word string) (n int64) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if word != "" && len(words) == 2 && words[0] == word {
			n, _ = strconv.ParseInt(words[1], 10, 64)
		} else if word == "" && len(words) == 1 {
			n, _ = strconv.ParseInt(words[0], 10, 64)
		}
	}
	return n
}

// The pod's own cgroup, in its two versions.
const cgroup = "/sys/fs/cgroup/"

// oomKills counts the processes that were ended for want of memory.
func oomKills() int64 {
	return field(cgroup+"memory.events", "oom_kill") + field(cgroup+"memory/memory.oom_control", "oom_kill")
}

func usage() pod.Usage {
	return pod.Usage{
		Memory: field(cgroup+"memory.current", "") + field(cgroup+"memory/memory.usage_in_bytes", ""),
		CPU:    field(cgroup+"cpu.stat", "usage_usec")*1000 + field(cgroup+"cpuacct/cpuacct.usage", ""),
	}
}
