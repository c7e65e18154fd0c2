package wparchive

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
)

// wpress is an archive of All-in-One WP Migration: files, each after a header, and an empty header at the end.
type wpress string

// Sizes of a header's fields, each padded with NUL: name, size in decimal digits, time and folder.
const (
	wpressName   = 255
	wpressSize   = 14
	wpressTime   = 12
	wpressFolder = 4096
	wpressHeader = wpressName + wpressSize + wpressTime + wpressFolder
)

// wpressPrefix stands for the table prefix.
const wpressPrefix = "SERVMASK_PREFIX_"

func (w wpress) walk(_ context.Context, take taker) (left []string, err error) {
	f, err := os.Open(string(w))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	h := make([]byte, wpressHeader)
	for {
		if _, err := io.ReadFull(in, h); err != nil {
			return left, errDamaged
		}
		if len(bytes.Trim(h, "\x00")) == 0 {
			return left, nil
		}
		size, err := strconv.ParseUint(field(h[wpressName:wpressName+wpressSize]), 10, 62)
		if err != nil {
			return left, bad("a size in it is no number")
		}
		folder := strings.ReplaceAll(field(h[wpressName+wpressSize+wpressTime:]), `\`, "/")
		name := field(h[:wpressName])
		if err := checkPath(folder + "/" + name); err != nil {
			return left, err
		}
		name = path.Join(folder, name)
		body := &io.LimitedReader{R: in, N: int64(size)}
		switch name {
		case "package.json":
			err = wpressPackage(body)
		case "multisite.json":
			err = bad("it is of a multisite network, which can't be imported")
		case "database.sql":
			err = take.take(item{in: &replaced{in: body, old: []byte(wpressPrefix), new: []byte("wp_")}})
		default:
			err = take.take(item{path: name, size: int64(size), in: body})
		}
		if err != nil {
			return left, err
		}
		if _, err := io.Copy(io.Discard, body); err != nil || body.N > 0 {
			return left, errDamaged
		}
	}
}

// field returns the text up to the first NUL. Newer versions add a checksum after it.
func field(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

// wpressPackage refuses archives in an unsupported form.
func wpressPackage(in io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(in, maxText))
	if err != nil {
		return errDamaged
	}
	var p struct {
		Encrypted   bool
		Compression struct{ Enabled bool }
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return bad("its package.json can't be read")
	}
	switch {
	case p.Encrypted:
		return bad("it is encrypted; export it again without a password")
	case p.Compression.Enabled:
		return bad("it is compressed; export it again without compression")
	}
	return nil
}
