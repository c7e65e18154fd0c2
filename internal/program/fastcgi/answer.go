package fastcgi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// maxFields is how many fields the head of an answer may have.
const maxFields = 256

// head reads the head of a CGI answer (RFC 3875, section 6) and returns the answer with the
// body to come.
func (x *exchange) head(noBody bool) (*http.Response, error) {
	out := bufio.NewReaderSize(x, 4<<10)
	h := http.Header{}
	read, fields := 0, 0
	for {
		line, err := readLine(out, maxHead-read)
		if err != nil {
			return nil, unexpected(err)
		}
		read += len(line) + 2
		if len(line) == 0 {
			break
		}
		if fields++; fields > maxFields {
			return nil, fmt.Errorf("%w: too many fields", ErrProtocol)
		}
		name, value, ok := strings.Cut(string(line), ":")
		value = strings.Trim(value, " \t")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%w: bad field in its head", ErrProtocol)
		}
		h.Add(textproto.CanonicalMIMEHeaderKey(name), value)
	}
	status := http.StatusOK
	if said, ok := h["Status"]; ok {
		code, _, _ := strings.Cut(said[len(said)-1], " ")
		n, err := strconv.Atoi(code)
		// A 1xx would announce another answer, and 101 another protocol.
		if err != nil || len(code) != 3 || n < 200 || n > 599 {
			return nil, fmt.Errorf("%w: status %.20q", ErrProtocol, said)
		}
		status = n
		delete(h, "Status")
	} else if h["Location"] != nil {
		status = http.StatusFound
	}
	delete(h, "Transfer-Encoding") // how the answer travels is not the responder's business
	resp := &http.Response{
		Status:        fmt.Sprintf("%d %s", status, http.StatusText(status)),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        h,
		ContentLength: -1,
	}
	length := int64(-1)
	if said, ok := h["Content-Length"]; ok {
		n, err := strconv.ParseUint(said[0], 10, 63)
		if err != nil || len(said) > 1 {
			return nil, fmt.Errorf("%w: bad Content-Length", ErrProtocol)
		}
		length = int64(n)
		resp.ContentLength = length
	}
	if noBody || status == http.StatusNoContent || status == http.StatusNotModified {
		length = 0
	}
	resp.Body = &body{x: x, out: out, left: length}
	return resp, nil
}

// readLine reads a line of at most limit bytes, without its end.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("%w: its head is too large", ErrProtocol)
		}
		line = append(line, part...)
		if err == nil {
			return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
	}
}

// body is the rest of an answer. It ends well only where the responder said so: at the
// announced length, or with the record that ends a request.
type body struct {
	x    *exchange
	out  *bufio.Reader
	left int64 // by Content-Length; -1: until the end
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if b.left > 0 && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.out.Read(p)
	if b.left > 0 {
		b.left -= int64(n)
		if err == io.EOF && b.left > 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// Close ends the request, whether it has been answered or not.
func (b *body) Close() error {
	b.x.close()
	return nil
}
