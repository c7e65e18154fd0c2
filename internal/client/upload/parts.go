package upload

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"slipway/internal/client/folder"
	"slipway/internal/client/rest"
)

// partTries is the number of attempts without progress; with the pauses, they outlast a restart of the server.
const partTries = 8

// inParts sends a large file in parts and resumes where the server's copy ends.
func inParts(ctx context.Context, c *rest.Client, path string, f *folder.Folder, x folder.File, p *Progress) error {
	var at, best int64
	for failures, ask := 0, false; ; {
		var got int64
		var err error
		if ask {
			got, err = received(c.Do(ctx, http.MethodGet, path, nil))
		} else {
			n := min(fullBatch, x.Size-at)
			if x.Size-at-n < 1<<20 {
				n = x.Size - at // no part may be smaller
			}
			got, err = received(c.Upload(ctx, rest.Body{
				Method: http.MethodPatch, Path: path, Type: "application/octet-stream", Size: n, Offset: at,
			}, func() (io.ReadCloser, error) { return from(f, x, at, n) }))
		}
		var no *rest.Error
		switch {
		case err == nil && got <= at && !ask:
			return errors.New("the server says that nothing of a part has arrived")
		case err == nil:
			p.bytes.Add(got - at)
			at, ask = got, false
			if at >= x.Size {
				return nil
			}
		case errors.As(err, &no) && (no.Code == "offset_mismatch" || no.Code == "body_incomplete"):
			ask = true
		case errors.Is(err, rest.ErrUnreachable):
			ask = true
			if failures > 0 {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(min(8*time.Second, 125*time.Millisecond<<failures)):
				}
			}
		default:
			return err
		}
		if at > best {
			best, failures = at, 0
		} else if err != nil {
			failures++
			if failures > partTries {
				return err
			}
		}
	}
}

// received returns how much of a file the server has.
func received(answer json.RawMessage, err error) (int64, error) {
	var got struct{ Offset int64 }
	if err == nil {
		err = json.Unmarshal(answer, &got)
	}
	return got.Offset, err
}

// from opens n bytes of a file at an offset.
func from(f *folder.Folder, x folder.File, at, n int64) (io.ReadCloser, error) {
	in, err := f.Content(x)
	if err != nil {
		return nil, err
	}
	if s, ok := in.(io.Seeker); ok {
		_, err = s.Seek(at, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, in, at)
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &whole{in, n}, nil
}
