package fastpath

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// Encodings is the set of content codings that a request accepts, each as much as the
// others.
type Encodings uint8

// The codings that a request may accept. Others are not looked at.
const (
	Gzip Encodings = 1 << iota
	Brotli
	Zstd
)

// String returns the set as an Accept-Encoding field has it.
func (e Encodings) String() string {
	var names []string
	for i, name := range []string{"gzip", "br", "zstd"} {
		if e&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Answer is a whole answer with status 200, ready to be sent. It is immutable.
type Answer struct {
	Of any // the caller's

	body []byte
	h1   []byte // status line and fields, without Date and the empty line
	h2   []byte // a header block without date that neither needs nor changes a dynamic table
}

// Size is about how many bytes the Answer itself takes, without its body.
func (a *Answer) Size() int64 { return int64(len(a.h1) + len(a.h2) + 160) }

// Body returns the answer's body, which nobody may change.
func (a *Answer) Body() []byte { return a.body }

var errHeader = errors.New("a field that cannot be prepared")

// NewAnswer makes an answer with these fields, to which Date is added when it is sent. It
// refuses fields that concern the connection. body is kept and must not change.
func NewAnswer(header http.Header, body []byte) (*Answer, error) {
	if header.Get("Content-Length") != strconv.Itoa(len(body)) || len(header["Content-Length"]) != 1 || len(header["Content-Type"]) != 1 {
		return nil, errHeader // net/http would add or correct them
	}
	var h1, h2 bytes.Buffer
	h1.WriteString("HTTP/1.1 200 OK\r\n")
	enc := hpack.NewEncoder(&h2)
	enc.SetMaxDynamicTableSize(0)
	enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	h2.Reset() // the change of the table's size was for the encoder alone
	enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		lower := strings.ToLower(name)
		switch lower {
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te", "trailer", "date":
			return nil, errHeader
		}
		if !httpguts.ValidHeaderFieldName(name) || strings.HasPrefix(name, ":") {
			return nil, errHeader
		}
		for _, v := range header[name] {
			if !httpguts.ValidHeaderFieldValue(v) || v != strings.Trim(v, " \t") {
				return nil, errHeader
			}
			h1.WriteString(name + ": " + v + "\r\n")
			enc.WriteField(hpack.HeaderField{Name: lower, Value: v})
		}
	}
	if h1.Len() > 8<<10 {
		return nil, errHeader
	}
	return &Answer{body: body, h1: bytes.Clone(h1.Bytes()), h2: bytes.Clone(h2.Bytes())}, nil
}
