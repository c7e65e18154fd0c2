package deployments

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/deploy/upload"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/web/api/contract"
)

// Minimum speed of uploads.
const (
	slowest   = 16 << 10         // bytes per second on average
	headStart = 30 * time.Second // in addition
)

// paced reads a body as long as it arrives fast enough.
type paced struct {
	io.Reader
	conn  *http.ResponseController
	begun time.Time
	n     int64
}

func (p *paced) Read(b []byte) (int, error) {
	until := p.begun.Add(headStart + time.Duration(p.n/slowest)*time.Second)
	_ = p.conn.SetReadDeadline(until) // not supported by test recorders
	n, err := p.Reader.Read(b)
	p.n += int64(n)
	return n, err
}

// sent is a request whose body is read while it arrives.
type sent struct {
	caller account.Caller
	id     upload.ID // of the upload
	blob   string    // digest in the path. Optional.
	http   *http.Request
	answer http.Header
	body   io.Reader
}

// rawRoute registers a route whose body isn't JSON and is read by fn while it arrives.
func rawRoute[O any](a *API, r contract.Route, kind string, fn func(ctx context.Context, s sent) (O, error)) {
	r.Raw, r.Limited = true, true
	op := a.Operation(r, reflect.TypeFor[O]())
	op.Middlewares = nil // don't read the body as JSON
	op.Responses["409"] = &huma.Response{}
	op.RequestBody = &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{kind: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
	}
	if strings.Contains(r.Path, "{sha256}") {
		contract.Writes(a.API, r, op, func(_ context.Context, r contract.Route, in *blobIn) (func(huma.Context), error) {
			return receiveRaw(a, r, in.ID, in.SHA256, fn), nil
		})
	} else {
		contract.Writes(a.API, r, op, func(_ context.Context, r contract.Route, in *contract.ByID[upload.ID]) (func(huma.Context), error) {
			return receiveRaw(a, r, in.ID, "", fn), nil
		})
	}
}

type blobIn struct {
	contract.ByID[upload.ID]
	SHA256 string `path:"sha256" doc:"SHA-256 of the content: 64 lower-case hexadecimal digits."`
}

func receiveRaw[O any](
	a *API, r contract.Route, id upload.ID, digest string, fn func(ctx context.Context, s sent) (O, error),
) func(huma.Context) {
	return func(hctx huma.Context) {
		req, w := humago.Unwrap(hctx)
		conn := http.NewResponseController(w)
		defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
		ctx := hctx.Context()
		c, err := r.Permit(contract.From(ctx).Caller)
		if err == nil {
			_, err = a.upload(ctx, c, id)
		}
		var out O
		if err == nil {
			out, err = fn(ctx, sent{c, id, digest, req, w.Header(), &paced{Reader: req.Body, conn: conn, begun: time.Now()}})
		}
		if err == nil {
			err = a.Holds(ctx, c) // the key may have been revoked while the body arrived
		}
		var body []byte
		if err == nil {
			body, err = contract.Encode(out)
		}
		if err != nil {
			_ = conn.SetReadDeadline(time.Now().Add(headStart))
			contract.Discard(req)
			a.Fail(w, req, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(r.Status)
		_, _ = w.Write(body)
	}
}

// maxNeeded caps the missing contents in the answer to a manifest.
const maxNeeded = 1000

type manifestBody struct {
	Files   int64         `json:"files"`
	Bytes   int64         `json:"bytes"`
	Missing missingBody   `json:"missing" doc:"Contents that have to be sent."`
	Needed  []missingBlob `json:"needed" doc:"The first 1,000 of them; GET /uploads/{id}/missing lists all."`
	Digest  string        `json:"manifestSha256" doc:"Digest of the list of files; the same for the same files."`
}

func (a *API) manifestRoute(r contract.Route) {
	r.Method, r.Status = http.MethodPut, http.StatusOK
	rawRoute(a, r, "application/x-ndjson", func(ctx context.Context, s sent) (manifestBody, error) {
		body, err := upload.Unpack(s.body, strings.Join(s.http.Header["Content-Encoding"], ","))
		if err != nil {
			return manifestBody{}, err
		}
		defer body.Close()
		u, need, err := a.Uploads.PutManifest(ctx, s.caller, s.id, body)
		m := upload.Sum(need)
		first := contract.Each(need[:min(maxNeeded, len(need))], showMissing)
		return manifestBody{u.Files, u.Bytes, missingBody{m.Files, m.Bytes}, first, u.Manifest}, err
	})
}

type batchBody struct {
	Stored  int           `json:"stored" doc:"Blobs that are durable now."`
	Refused []refusedBody `json:"refused"`
	Missing missingBody   `json:"missing" doc:"Contents that still have to be sent."`
}

type refusedBody struct {
	SHA256 string `json:"sha256"`
	Code   string `json:"code" enum:"not_expected,size_mismatch,digest_mismatch"`
}

func (a *API) batchRoute(r contract.Route) {
	r.Method, r.Status = http.MethodPost, http.StatusOK
	rawRoute(a, r, "application/vnd.slipway.blobs", func(ctx context.Context, s sent) (batchBody, error) {
		got, err := a.Uploads.Receive(ctx, s.caller.Owner, s.id, s.body)
		refused := contract.Each(got.Refused, func(r upload.Refused) refusedBody { return refusedBody{r.Digest.String(), r.Code} })
		return batchBody{got.Stored, refused, missingBody{got.Missing.Files, got.Missing.Bytes}}, err
	})
}

type blobBody struct {
	Missing missingBody `json:"missing" doc:"Contents that still have to be sent."`
}

func (a *API) blobRoute(r contract.Route) {
	r.Method, r.Status = http.MethodPut, http.StatusOK
	rawRoute(a, r, "application/octet-stream", func(ctx context.Context, s sent) (blobBody, error) {
		d, err := parseDigest(s.blob)
		if err != nil {
			return blobBody{}, err
		}
		m, err := a.Uploads.ReceiveOne(ctx, s.caller.Owner, s.id, d, s.http.ContentLength, s.body)
		return blobBody{missingBody{m.Files, m.Bytes}}, err
	})
}

func parseDigest(text string) (blob.Digest, error) {
	d, err := blob.ParseDigest(text)
	if err != nil {
		return d, fault.New(fault.Invalid, "invalid_digest", "Invalid SHA-256",
			"the path ends with 64 lower-case hexadecimal digits")
	}
	return d, nil
}
