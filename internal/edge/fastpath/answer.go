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

// Encodings is the set of content encodings that a request accepts with equal weight.
type Encodings uint8

// Encodings that a request may accept. Others are ignored.
const (
	Gzip Encodings = 1 << iota
	Brotli
	Zstd
)

// String formats the set as an Accept-Encoding value.
func (e Encodings) String() string {
	var names []string
	for i, name := range []string{"gzip", "br", "zstd"} {
		if e&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Answer is a complete response with status 200, ready to send, and the matching 304. It is immutable.
type Answer struct {
	Of any // for the caller's use
	// Sessions lists texts in cookies. Requests with one of them go to Config.HTTP.
	Sessions []string

	body      []byte
	whole     head
	tag       string // a request with only this tag in If-None-Match gets unchanged
	unchanged head
}

// head is what precedes the body, in the format of each protocol.
type head struct {
	h1 []byte // status line and header, without Date and the empty line
	h2 []byte // header block without Date; independent of the dynamic table
}

// Size returns the approximate memory of the Answer in bytes, without its body.
func (a *Answer) Size() int64 {
	return int64(len(a.whole.h1) + len(a.whole.h2) + len(a.unchanged.h1) + len(a.unchanged.h2) + len(a.tag) + 240)
}

// Body returns the response body. The caller must not change it.
func (a *Answer) Body() []byte { return a.body }

var errHeader = errors.New("a field that cannot be prepared")

// NewAnswer prepares a response with this header; Date is added when it is sent. It refuses connection-specific fields.
// It keeps body, which must not change.
func NewAnswer(header http.Header, body []byte) (*Answer, error) {
	if header.Get("Content-Length") != strconv.Itoa(len(body)) || len(header["Content-Length"]) != 1 || len(header["Content-Type"]) != 1 {
		return nil, errHeader // net/http would add or change these
	}
	whole, err := newHead("200", "OK", header)
	if err != nil {
		return nil, err
	}
	return &Answer{body: body, whole: whole}, nil
}

// Unchanged adds the 304 response for requests that have the entity tag. Call it before the Answer is used.
func (a *Answer) Unchanged(tag string, header http.Header) error {
	if len(tag) < 2 || tag[0] != '"' || strings.Trim(tag, "\"") == "" || len(header["Content-Length"]) > 0 {
		return errHeader
	}
	h, err := newHead("304", "Not Modified", header)
	if err != nil {
		return err
	}
	a.tag, a.unchanged = tag, h
	return nil
}

func newHead(status, reason string, header http.Header) (head, error) {
	var h1, h2 bytes.Buffer
	h1.WriteString("HTTP/1.1 " + status + " " + reason + "\r\n")
	enc := hpack.NewEncoder(&h2)
	enc.SetMaxDynamicTableSize(0)
	enc.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	h2.Reset() // the table size update only concerned the encoder
	enc.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		lower := strings.ToLower(name)
		switch lower {
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te", "trailer", "date":
			return head{}, errHeader
		}
		if !httpguts.ValidHeaderFieldName(name) || strings.HasPrefix(name, ":") {
			return head{}, errHeader
		}
		for _, v := range header[name] {
			if !httpguts.ValidHeaderFieldValue(v) || v != strings.Trim(v, " \t") {
				return head{}, errHeader
			}
			h1.WriteString(name + ": " + v + "\r\n")
			enc.WriteField(hpack.HeaderField{Name: lower, Value: v})
		}
	}
	if h1.Len() > 8<<10 {
		return head{}, errHeader
	}
	return head{bytes.Clone(h1.Bytes()), bytes.Clone(h2.Bytes())}, nil
}
