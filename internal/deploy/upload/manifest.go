package upload

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// entry is one file of a manifest.
type entry struct {
	path   string
	mode   byte // 'f' file, 'x' executable, 'l' symbolic link, whose content is its target
	digest blob.Digest
	size   int64
}

// Limits of a manifest.
const (
	maxManifest = 64 << 20 // bytes, decompressed
	maxLine     = 8 << 10  // bytes of one line
	maxPath     = 1024     // bytes of one path
	maxName     = 255      // bytes of one name
	maxDepth    = 64       // folders of a path
	maxLink     = 4096     // bytes of a link's target
)

func invalid(code, message, details string, args ...any) error {
	return fault.New(fault.Invalid, code, message, fmt.Sprintf(details, args...))
}

// Unpack returns the decoded body for a Content-Encoding: gzip, zstd or none.
func Unpack(r io.Reader, encoding string) (io.ReadCloser, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return io.NopCloser(r), nil
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, invalid("invalid_encoding", "The body is not gzip", "it doesn't begin like it")
		}
		return z, nil
	case "zstd":
		// RFC 9659: 8 MiB is the largest window that a receiver must support.
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20),
			zstd.WithDecoderMaxMemory(maxManifest))
		if err != nil {
			return nil, invalid("invalid_encoding", "The body is not zstd", "it doesn't begin like it")
		}
		return z.IOReadCloser(), nil
	}
	return nil, fault.New(fault.Media, "unsupported_content_encoding", "Unsupported Content-Encoding",
		"send the body as it is, or with gzip or zstd").Got(text.Clip(encoding, 100))
}

// parse reads a manifest, one line of JSON per file, and returns its entries sorted by path.
func parse(r io.Reader, kind Kind, most Limits) ([]entry, error) {
	counted := &io.LimitedReader{R: r, N: maxManifest + 1}
	lines := bufio.NewReaderSize(counted, maxLine)
	var list []entry
	var total int64
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case counted.N == 0:
			return nil, fault.New(fault.TooLarge, "manifest_too_large", "The manifest is too large",
				"the limit is "+text.Size(maxManifest)+" unpacked")
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fault.New(fault.TooLarge, "manifest_too_large", fmt.Sprintf("Line %d of the manifest is too long", n),
				fmt.Sprintf("a line has at most %d bytes", maxLine))
		case err != nil && err != io.EOF:
			return nil, invalid("body_incomplete", "Incomplete request body", "the manifest breaks off in line %d", n)
		}
		end := err == io.EOF
		line = bytes.TrimSpace(line)
		if len(line) > 0 {
			e, err := parseLine(line, kind)
			if err != nil {
				if f := fault.As(err); f != nil {
					f.Message = fmt.Sprintf("Line %d of the manifest: %s", n, f.Message)
				}
				return nil, err
			}
			if err := most.allow(e, len(list), total); err != nil {
				return nil, err
			}
			total += e.size
			list = append(list, e)
		}
		if end {
			return list, consistent(list)
		}
	}
}

// allow returns a fault if another file e exceeds the limits, after the given number of files and bytes.
func (l Limits) allow(e entry, files int, bytes int64) error {
	f := &fault.Error{Kind: fault.TooLarge}
	switch {
	case e.size > l.FileBytes:
		f.Message, f.Code, f.Received = "A file is too large", "upload_file_bytes", text.Clip(e.path, 200)
		f.Details = fmt.Sprintf("%s has %s; the limit is %s", text.Clip(e.path, 200), text.Size(e.size), text.Size(l.FileBytes))
	case bytes+e.size > l.Bytes:
		f.Message, f.Code, f.Details = "The files are too large in total", "upload_bytes", "the limit is "+text.Size(l.Bytes)
	case files >= l.Files:
		f.Message, f.Code, f.Details = "Too many files", "upload_files", fmt.Sprintf("the limit is %d files", l.Files)
	default:
		return nil
	}
	return f
}

func parseLine(line []byte, kind Kind) (e entry, err error) {
	if !utf8.Valid(line) {
		return e, invalid("invalid_manifest", "it is not UTF-8", "a line is a JSON object in UTF-8")
	}
	var in struct {
		Path   string `json:"path"`
		SHA256 string `json:"sha256"`
		Size   *int64 `json:"size"`
		Mode   string `json:"mode"`
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil || dec.More() {
		return e, invalid("invalid_manifest", "it is not a file's JSON object",
			`a line is {"path": "…", "sha256": "…", "size": 0} with mode "x" or "l" where it is one`)
	}
	if err := allowPath(in.Path); err != nil {
		return e, err
	}
	e.path = in.Path
	if e.digest, err = blob.ParseDigest(in.SHA256); err != nil {
		return e, invalid("invalid_manifest", "Invalid sha256", "it has 64 lower-case hexadecimal digits")
	}
	if in.Size == nil || *in.Size < 0 {
		return e, invalid("invalid_manifest", "Invalid size", "it is the number of the file's bytes")
	}
	e.size = *in.Size
	switch in.Mode {
	case "":
		e.mode = 'f'
	case "x":
		e.mode = 'x'
	case "l":
		e.mode = 'l'
		if kind != Source || e.size > maxLink {
			return e, invalid("invalid_manifest", "A symbolic link can't be uploaded", "%s: links may be in source alone, with at most %d bytes",
				show(e.path), maxLink)
		}
	default:
		return e, invalid("invalid_manifest", "Invalid mode", "mode is absent, x or l")
	}
	return e, nil
}

// consistent sorts the entries and returns a fault if they can't be files of one tree.
func consistent(list []entry) error {
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	sizes := make(map[blob.Digest]int64, len(list))
	names := make(map[string]bool, len(list))
	for _, e := range list {
		if names[e.path] {
			return invalid("invalid_path", "A path is in the manifest twice", "%s", show(e.path))
		}
		names[e.path] = true
		if n, ok := sizes[e.digest]; ok && n != e.size {
			return invalid("invalid_manifest", "Two files have the same sha256 and different sizes", "%s has %d bytes, another %d",
				show(e.path), e.size, n)
		}
		sizes[e.digest] = e.size
	}
	for _, e := range list {
		for dir := path.Dir(e.path); dir != "."; dir = path.Dir(dir) {
			if names[dir] {
				return invalid("invalid_path", "A path is a file and a folder", "%s and %s", show(dir), show(e.path))
			}
		}
	}
	return nil
}

// allowPath returns a fault if path can't be a file's path.
func allowPath(path string) error {
	why := checkPath(path)
	if why == "" {
		return nil
	}
	return fault.New(fault.Invalid, "invalid_path", "A file's path can't be uploaded", show(path)+": "+why).Got(show(path))
}

// checkPath returns why p can't be a file's path, or "".
func checkPath(p string) string {
	switch {
	case p == "":
		return "it is empty"
	case len(p) > maxPath:
		return fmt.Sprintf("it is longer than %d bytes", maxPath)
	case !utf8.ValidString(p):
		return "it is not valid UTF-8"
	case p[0] == '/':
		return "it begins with a slash"
	case len(p) > 1 && p[1] == ':':
		return "it begins with a drive"
	case strings.Count(p, "/") >= maxDepth:
		return fmt.Sprintf("it is more than %d folders deep", maxDepth)
	}
	for _, c := range p {
		if c < ' ' || c >= 0x7f && c < 0xa0 {
			return "it contains a control character"
		}
		if c == '\\' {
			return "it contains a backslash"
		}
	}
	for s := range strings.SplitSeq(p, "/") {
		switch {
		case s == "":
			return "it contains an empty name"
		case s == "." || s == "..":
			return "it contains the name " + s
		case strings.EqualFold(s, ".git"):
			return "it is part of a Git folder"
		case len(s) > maxName:
			return fmt.Sprintf("it contains a name of more than %d bytes", maxName)
		}
	}
	return ""
}

// show quotes an untrusted path for an error message.
func show(p string) string {
	q := strconv.QuoteToGraphic(text.Clip(strings.ToValidUTF8(p, "\ufffd"), 200))
	if q == `"`+p+`"` {
		return p
	}
	return q
}

// encode returns the stored form of a manifest. The same files have the same form.
func encode(list []entry) []byte {
	var b []byte
	for _, e := range list {
		b = hex.AppendEncode(b, e.digest[:])
		b = append(b, ' ', e.mode, ' ')
		b = strconv.AppendInt(b, e.size, 10)
		b = append(append(append(b, ' '), e.path...), '\n')
	}
	return b
}

// decode is encode's inverse.
func decode(b []byte) ([]entry, error) {
	list := make([]entry, 0, bytes.Count(b, []byte("\n")))
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(f) != 4 || len(f[1]) != 1 {
			return nil, errors.New("decode manifest: a line has another form")
		}
		digest, err := blob.ParseDigest(f[0])
		if err != nil {
			return nil, fmt.Errorf("decode manifest: %w", err)
		}
		size, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("decode manifest: %w", err)
		}
		list = append(list, entry{path: f[3], mode: f[1][0], digest: digest, size: size})
	}
	return list, nil
}
