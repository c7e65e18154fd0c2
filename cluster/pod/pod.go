// Package pod owns what the engine and the entry point inside a program's pod say to each other: the
// description of the program, which a Secret carries, the questions on the pod's port, and how the end is
// told.
package pod

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Port is the pod's port: the entry point listens there for the engine, and passes on to the program,
// which listens on the loopback as on one machine.
const Port = 8080

// Where things are in a pod.
const (
	SpecFile  = "/slipway/spec/spec.json" // the description
	FilesDir  = "/slipway/files"          // the key of each file of Description.Files, for prepare
	StageDir  = "/slipway/temporary"      // where prepare sees temporary folders, by number
	TreesDir  = "/slipway/trees"          // where prepare sees trees that lie in storage, by number
	EpochFile = "/run/slipway/epoch"      // names the epoch of an object cache
	EpochOwn  = "/tmp/.redis/epoch"       // and the one of the program's own
	EntryFile = "/slipway/program"        // the entry point, in the image
	// StorageDir is where prepare sees all of the site's storage.
	StorageDir = "/slipway/storage"
)

// Description says what a pod runs. It is secret: environments hold passwords.
type Description struct {
	Argv []string `json:"argv"`
	Dir  string   `json:"dir"` // absolute, in the pod
	Env  []string `json:"env"` // KEY=value, all of it

	Trees     []Tree   `json:"trees"`     // the first one is the bundle itself
	Files     []string `json:"files"`     // paths below the bundle at which a file of the Secret appears
	Temporary []string `json:"temporary"` // paths below the bundle that are writable folders of this pod's

	Storage      []Folder `json:"storage,omitempty"` // those that outlive the pod
	StorageLimit int64    `json:"storageLimit,omitempty"`
	ReadOnly     bool     `json:"readOnly,omitempty"` // the program may not write to them: they are full

	Name    string `json:"name"`    // of the pod, by which the engine knows it
	Address string `json:"address"` // host:port of the packs and of what Ways lead to, over TLS
	CA      string `json:"ca"`      // the certificate that it has, PEM
	// Canary is an address that listens and that no pod may reach: reaching it says that the network is
	// open. Empty: nothing is proven.
	Canary string `json:"canary"`

	Ways []Way `json:"ways"` // what the program reaches beside the network

	Token string `json:"token"` // whoever asks on Port knows it
	Pids  int64  `json:"pids"`
	// Linger is how many seconds a program that answers requests goes on after SIGTERM of the cluster: the engine replaces it meanwhile,
	// and stops it.
	Linger   int64 `json:"linger"`
	MaxBytes int64 `json:"maxBytes"` // of each tree
	Terminal *Size `json:"terminal,omitempty"`

	FPM string `json:"fpm,omitempty"` // its own folder, where the program is PHP-FPM: it inherits its socket as descriptor 3
	// Cache says that PHP-FPM has an object cache on the operator's Redis server. It is not used before the first Epoch.
	Cache bool `json:"cache,omitempty"`

	PHP string `json:"php,omitempty"` // what a command finds by the name php
}

// WaysProtocol is what a pod asks for by TLS's ALPN at Description.Address where a connection is to be led on.
// It begins with a question like those on Port: the pod's Asker, and the verb of a Way.
const WaysProtocol = "slipway-ways"

// What a way leads to.
const (
	Database = "database"
	Mail     = "mail"
	Redis    = "redis"
	Own      = "own" // the edge, for the program's own site
)

// Way is where a program finds something that the control plane leads it to.
type Way struct {
	Verb    string `json:"verb"`
	Address string `json:"address"`          // host:port of the pod's loopback
	Socket  string `json:"socket,omitempty"` // a Unix socket beside it
}

// Asker is how a pod says who it is on WaysProtocol.
func (d Description) Asker() string { return d.Name + "." + d.Token }

// AskerOf takes an Asker apart.
func AskerOf(asker string) (name, token string) {
	name, token, _ = strings.Cut(asker, ".")
	return name, token
}

// Size is a terminal's.
type Size struct {
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}

// Tree is a bundle that is laid into the pod's files.
type Tree struct {
	Path   string `json:"path"` // below the bundle; "" is the bundle itself
	Bundle string `json:"bundle"`
	From   string `json:"from"` // the folder of it that is laid there; "" is all of it
	Query  string `json:"query"`
	Stage  string `json:"stage,omitempty"` // where prepare lays it instead: it lies in a folder that is mounted
}

// Folder is one of the site's storage.
type Folder struct {
	Path string `json:"path"` // where it appears, below the bundle; or absolute, where the bundle has nothing
	Name string `json:"name"` // of its directory in StorageDir
}

// At returns where a folder appears, below a bundle's place.
func (f Folder) At(bundle string) string {
	if path.IsAbs(f.Path) {
		return f.Path
	}
	return path.Join(bundle, f.Path)
}

// StorageFull is the reason of a prepare that must not let the program write to its storage.
const StorageFull = "storage is full"

// End says how a program ended. It is the container's termination message, too.
type End struct {
	Code        int    `json:"code"`
	Reason      string `json:"reason"`
	OutOfMemory bool   `json:"outOfMemory,omitempty"`
	Stored      *int64 `json:"stored,omitempty"`    // bytes of the site's storage, where that was counted
	Unreached   bool   `json:"unreached,omitempty"` // its files could not be fetched: it has not begun, and another pod may do better
}

// Usage is what a pod uses.
type Usage struct {
	Memory int64 `json:"memory"` // bytes
	CPU    int64 `json:"cpu"`    // nanoseconds
	Stored int64 `json:"stored"` // bytes of the site's storage; counted only for Count
}

// Verbs are what the engine asks on Port, one for each connection: a line of the token, the verb and
// perhaps a number.
const (
	Ping     = "ping"     // Yes once the program has been started
	Dial     = "dial"     // Yes, then the connection is the program's; or No: it doesn't listen
	Stop     = "stop"     // with milliseconds: SIGTERM now, SIGKILL then; the connection ends with the pod
	Report   = "usage"    // Yes, then a Usage as JSON
	Epoch    = "epoch"    // with 1 or 0: what the object cache holds is found no more, and it is used or not; Yes once it is so
	Count    = "count"    // as Report, with what is stored
	Hold     = "hold"     // with milliseconds: Yes when the program stands still, which it does until the connection ends, or that long
	Open     = "open"     // with the length of the Wanted that follows as JSON: Yes, a File as a line of JSON, its bytes unless they are had; or No
	Store    = "store"    // Yes, then what package stored says of the whole volume; of a keeper alone
	Terminal = "terminal" // Yes, then what is typed as frames one way, what is written the other way
)

// Replies to a verb.
const (
	Yes byte = '+'
	No  byte = '-'
)

// Wanted is the question that follows Open.
type Wanted struct {
	Folder string `json:"folder"` // one of the program's, relative to the bundle
	Path   string `json:"path"`   // below it
	Have   File   `json:"have"`   // what the engine has of it
}

// File says which file something is, and in which state.
type File struct {
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"` // nanoseconds since 1970
	Inode   uint64 `json:"inode"`
}

// maxWanted is how long a Wanted may be.
const maxWanted = 16 << 10

// AskFor asks for a file.
func AskFor(c io.ReadWriter, token string, w Wanted) (reply byte, err error) {
	text, err := json.Marshal(w)
	if err != nil {
		return 0, err
	}
	return ask(c, append(fmt.Appendf(nil, "%s %s %d\n", token, Open, len(text)), text...))
}

// ReadWanted reads what follows Open.
func ReadWanted(c io.Reader, length int64) (w Wanted, err error) {
	if length < 0 || length > maxWanted {
		return w, errTooLong
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(c, text); err != nil {
		return w, err
	}
	return w, json.Unmarshal(text, &w)
}

var errTooLong = errors.New("the question is too long")

// maxLine is how long the line of a question may be.
const maxLine = 256

// Ask writes a question and reads its reply.
func Ask(c io.ReadWriter, token, verb string, number int64) (reply byte, err error) {
	return ask(c, fmt.Appendf(nil, "%s %s %d\n", token, verb, number))
}

func ask(c io.ReadWriter, question []byte) (reply byte, err error) {
	if _, err := c.Write(question); err != nil {
		return 0, err
	}
	var b [1]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return 0, err
	}
	return b[0], nil
}

// Listen reads a question. What follows it is read from c.
func Listen(c io.Reader) (token, verb string, number int64, err error) {
	line := make([]byte, 0, maxLine)
	var b [1]byte // one at a time: what follows the line belongs to the program
	for {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return "", "", 0, err
		}
		if b[0] == '\n' {
			break
		}
		if line = append(line, b[0]); len(line) == maxLine {
			return "", "", 0, errTooLong
		}
	}
	if _, err := fmt.Sscanf(string(line), "%s %s %d", &token, &verb, &number); err != nil {
		return "", "", 0, err
	}
	return token, verb, number, nil
}

// Frames of a terminal: a byte says what it is, two how long it is.
const (
	frameTyped byte = 't'
	frameSize  byte = 's'
	maxFrame        = 1 << 15
)

// WriteTyped writes what was typed.
func WriteTyped(w io.Writer, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), maxFrame)
		if err := writeFrame(w, frameTyped, p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// WriteSize writes a new size.
func WriteSize(w io.Writer, s Size) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeFrame(w, frameSize, text)
}

func writeFrame(w io.Writer, kind byte, p []byte) error {
	_, err := w.Write(append([]byte{kind, byte(len(p) >> 8), byte(len(p))}, p...))
	return err
}

// ReadFrame reads a frame: what was typed, or a size.
func ReadFrame(r *bufio.Reader) (typed []byte, size *Size, err error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil, err
	}
	text := make([]byte, int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, nil, err
	}
	if head[0] == frameTyped {
		return text, nil, nil
	}
	size = &Size{}
	return nil, size, json.Unmarshal(text, size)
}

// A pod's log has one stream for what programs write to two. A line of standard error begins with
// "stderr: "; one of standard output that begins as if it were marked is marked itself.
const (
	markErr = "stderr: "
	markOut = "stdout: "
)

// Mark returns a line as the pod's log has it.
func Mark(stream, line string) string {
	switch {
	case stream == "stderr":
		return markErr + line
	case strings.HasPrefix(line, markErr), strings.HasPrefix(line, markOut):
		return markOut + line
	}
	return line
}

// Unmark returns the stream and the line of a line of the pod's log.
func Unmark(line string) (stream, text string) {
	if text, ok := strings.CutPrefix(line, markErr); ok {
		return "stderr", text
	}
	return "stdout", strings.TrimPrefix(line, markOut)
}
