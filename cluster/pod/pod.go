// Package pod owns the protocol between the engine and the entry point in a program's pod: the program's description,
// stored in a Secret, the questions on the pod's port, and the report of the end.
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

// Port is the pod's port, on which the entry point listens for the engine and forwards to the program, which listens on
// the loopback as on a single machine.
const Port = 8080

// Paths in a pod.
const (
	SpecFile  = "/slipway/spec/spec.json" // the description
	FilesDir  = "/slipway/files"          // keys of Description.Files, for prepare
	StageDir  = "/slipway/temporary"      // temporary folders by number, for prepare
	TreesDir  = "/slipway/trees"          // trees inside storage folders by number, for prepare
	EpochFile = "/run/slipway/epoch"      // the epoch of an object cache
	EpochOwn  = "/tmp/.redis/epoch"       // the epoch of the program's own object cache
	EntryFile = "/slipway/program"        // the entry point in the image
	// StorageDir is the mount point of all of the site's storage, for prepare.
	StorageDir = "/slipway/storage"
)

// Description describes a pod's program. It is secret, since environment variables contain passwords.
type Description struct {
	Argv []string `json:"argv"`
	Dir  string   `json:"dir"` // absolute path in the pod
	Env  []string `json:"env"` // KEY=value, complete

	Trees     []Tree   `json:"trees"`     // the first is the bundle itself
	Files     []string `json:"files"`     // paths below the bundle where the Secret's files are mounted
	Temporary []string `json:"temporary"` // paths below the bundle of the pod's writable temporary folders

	Storage      []Folder `json:"storage,omitempty"` // folders that outlive the pod
	StorageLimit int64    `json:"storageLimit,omitempty"`
	ReadOnly     bool     `json:"readOnly,omitempty"` // the storage is full, so the program may not write to it

	Name    string `json:"name"`    // the pod's name, by which the engine identifies it
	Address string `json:"address"` // host:port of the packs and the ways' services, over TLS
	CA      string `json:"ca"`      // its certificate, PEM
	// Canary is a listening address that pods must not reach; reaching it means that the network isn't closed. Empty:
	// no check.
	Canary string `json:"canary"`

	Ways []Way `json:"ways"` // services for the program besides the network

	Token string `json:"token"` // required for questions on Port
	Pids  int64  `json:"pids"`
	// Linger is how many seconds a program that serves requests continues after the cluster's SIGTERM. Meanwhile the
	// engine replaces and stops it.
	Linger   int64 `json:"linger"`
	MaxBytes int64 `json:"maxBytes"` // per tree
	Terminal *Size `json:"terminal,omitempty"`

	FPM string `json:"fpm,omitempty"` // PHP-FPM's own folder; it inherits its socket as descriptor 3
	// Cache says whether PHP-FPM has an object cache on the operator's Redis server. It isn't used before the first
	// Epoch.
	Cache bool `json:"cache,omitempty"`

	PHP string `json:"php,omitempty"` // what php resolves to for a command
}

// WaysProtocol is the TLS ALPN protocol with which a pod requests a forwarded connection at [Description.Address]. The
// connection begins with a question as on Port: the pod's Asker and the verb of a Way.
const WaysProtocol = "slipway-ways"

// The services of ways.
const (
	Database = "database"
	Mail     = "mail"
	Redis    = "redis"
	Own      = "own" // the edge, for the program's own site
)

// Way is a local address of a service provided by the control plane.
type Way struct {
	Verb    string `json:"verb"`
	Address string `json:"address"`          // host:port on the pod's loopback
	Socket  string `json:"socket,omitempty"` // additional Unix socket
}

// Asker returns the pod's identification on WaysProtocol.
func (d Description) Asker() string { return d.Name + "." + d.Token }

// AskerOf splits an Asker.
func AskerOf(asker string) (name, token string) {
	name, token, _ = strings.Cut(asker, ".")
	return name, token
}

// Size is the size of a terminal.
type Size struct {
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}

// Tree is a bundle laid out in the pod's files.
type Tree struct {
	Path   string `json:"path"` // below the bundle; "" is the bundle itself
	Bundle string `json:"bundle"`
	From   string `json:"from"` // folder within the tree to lay out; "" is all of it
	Query  string `json:"query"`
	Stage  string `json:"stage,omitempty"` // where prepare lays it out instead if it is inside a mounted folder
}

// Folder is a storage folder.
type Folder struct {
	Path string `json:"path"` // mount path below the bundle, or absolute
	Name string `json:"name"` // directory in StorageDir
}

// At returns a folder's path, given the bundle's.
func (f Folder) At(bundle string) string {
	if path.IsAbs(f.Path) {
		return f.Path
	}
	return path.Join(bundle, f.Path)
}

// StorageFull is the reason of a prepare step that refuses to let the program write.
const StorageFull = "storage is full"

// End is how a program ended. It is also the container's termination message.
type End struct {
	Code        int    `json:"code"`
	Reason      string `json:"reason"`
	OutOfMemory bool   `json:"outOfMemory,omitempty"`
	Stored      *int64 `json:"stored,omitempty"`    // bytes of the site's storage, if counted
	Unreached   bool   `json:"unreached,omitempty"` // the files couldn't be fetched, so the program didn't begin and another pod may succeed
}

// Usage is a pod's resource usage.
type Usage struct {
	Memory int64 `json:"memory"` // bytes
	CPU    int64 `json:"cpu"`    // nanoseconds
	Stored int64 `json:"stored"` // bytes of the site's storage; only set for Count
}

// The engine's questions on Port, one per connection: a line with the token, the verb and a number.
const (
	Ping     = "ping"     // Yes once the program has started
	Dial     = "dial"     // Yes, after which the connection is the program's; or No: it doesn't listen
	Stop     = "stop"     // number: milliseconds between SIGTERM and SIGKILL; the connection ends with the pod
	Report   = "usage"    // Yes, then a Usage as JSON
	Epoch    = "epoch"    // number: 1 to enable or 0 to disable the object cache; invalidates its content; Yes when done
	Count    = "count"    // like Report, with the stored bytes
	Hold     = "hold"     // number: maximum in milliseconds; Yes once the program is stopped, until the connection ends
	Open     = "open"     // number: length of the Wanted that follows as JSON; Yes, a File as a JSON line, and its bytes unless they are current; or No
	Store    = "store"    // only from a keeper: Yes, then the protocol of package stored for the whole volume
	Terminal = "terminal" // Yes, then input as frames and output
)

// Replies to a question.
const (
	Yes byte = '+'
	No  byte = '-'
)

// Wanted is the question that follows Open.
type Wanted struct {
	Folder string `json:"folder"` // a storage folder, relative to the bundle
	Path   string `json:"path"`   // below the folder
	Have   File   `json:"have"`   // the engine's version
}

// File identifies a file's version.
type File struct {
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"` // nanoseconds since 1970
	Inode   uint64 `json:"inode"`
}

// maxWanted caps a Wanted in bytes.
const maxWanted = 16 << 10

// AskFor asks for a file.
func AskFor(c io.ReadWriter, token string, w Wanted) (reply byte, err error) {
	text, err := json.Marshal(w)
	if err != nil {
		return 0, err
	}
	return ask(c, append(fmt.Appendf(nil, "%s %s %d\n", token, Open, len(text)), text...))
}

// ReadWanted reads the Wanted that follows Open.
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

// maxLine caps a question's line in bytes.
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

// Listen reads a question. The caller reads what follows from c.
func Listen(c io.Reader) (token, verb string, number int64, err error) {
	line := make([]byte, 0, maxLine)
	var b [1]byte // byte by byte, since what follows the line is the program's
	for {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return "", "", 0, err
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
		if len(line) == maxLine {
			return "", "", 0, errTooLong
		}
	}
	if _, err := fmt.Sscanf(string(line), "%s %s %d", &token, &verb, &number); err != nil {
		return "", "", 0, err
	}
	return token, verb, number, nil
}

// A frame of a terminal has a byte for its kind, two for its length, and the content.
const (
	frameTyped byte = 't'
	frameSize  byte = 's'
	maxFrame        = 1 << 15
)

// WriteTyped writes input.
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

// ReadFrame reads a frame: input or a size.
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

// A pod's log merges the program's two output streams. Lines of standard error begin with "stderr: ". Lines of standard
// output that look marked are marked as standard output.
const (
	markErr = "stderr: "
	markOut = "stdout: "
)

// Mark returns a line as written to the pod's log.
func Mark(stream, line string) string {
	switch {
	case stream == "stderr":
		return markErr + line
	case strings.HasPrefix(line, markErr), strings.HasPrefix(line, markOut):
		return markOut + line
	}
	return line
}

// Unmark returns the stream and text of a line of the pod's log.
func Unmark(line string) (stream, text string) {
	if text, ok := strings.CutPrefix(line, markErr); ok {
		return "stderr", text
	}
	return "stdout", strings.TrimPrefix(line, markOut)
}
