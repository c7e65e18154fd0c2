package deployments

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/deploy/upload"
	"slipway/internal/platform/fault"
	"slipway/internal/web/api/contract"
)

// offsetHeader has the meaning that it has in tus and in the drafts of resumable uploads.
const offsetHeader = "Upload-Offset"

type partBody struct {
	Offset  int64       `json:"offset" doc:"Bytes that are durable, from the beginning. Also in the header Upload-Offset."`
	Size    int64       `json:"size" doc:"Bytes of the whole file."`
	Missing missingBody `json:"missing" doc:"Contents that still have to be sent."`
}

func showPart(p upload.Progress) partBody {
	return partBody{p.Offset, p.Size, missingBody{p.Missing.Files, p.Missing.Bytes}}
}

// partRoutes registers uploading a file in parts, and reading its progress.
func (a *API) partRoutes(r contract.Route) {
	get := r
	get.ID, get.Summary = "getUploadBlob", "Read the progress of a blob"
	get.Doc = "How many bytes of a file have been received in parts. HEAD returns the header `Upload-Offset` alone."
	a.offsetRoute(get)
	r.ID, r.Summary, r.Method, r.Status = "sendUploadPart", "Send part of a blob", http.MethodPatch, http.StatusOK
	r.Doc = "Sends a large file in parts that can be resumed. The header `Upload-Offset` says where the part begins; 409 " +
		"`offset_mismatch` names the right offset. " +
		"Every part but the last has 1 to 64 MiB. If the connection breaks, whole MiB that arrived are kept."
	rawRoute(a, r, "application/octet-stream", func(ctx context.Context, s sent) (partBody, error) {
		d, err := parseDigest(s.blob)
		if err != nil {
			return partBody{}, err
		}
		at, err := strconv.ParseInt(s.http.Header.Get(offsetHeader), 10, 64)
		if err != nil || at < 0 {
			return partBody{}, fault.New(fault.Invalid, "invalid_offset", "Invalid Upload-Offset",
				"send a header Upload-Offset with the bytes before this part")
		}
		p, err := a.Uploads.ReceivePart(ctx, s.caller.Owner, upload.ID(s.id), d, at, s.body)
		if err == nil {
			s.answer.Set(offsetHeader, strconv.FormatInt(p.Offset, 10))
		}
		return showPart(p), err
	})
}

func (a *API) offsetRoute(r contract.Route) {
	r.Method, r.Status = http.MethodGet, http.StatusOK
	contract.Writes(a.API, r, a.Operation(r, reflect.TypeFor[partBody]()), func(ctx context.Context, r contract.Route,
		in *blobIn,
	) (func(huma.Context), error) {
		c, err := r.Permit(contract.From(ctx).Caller)
		if err != nil {
			return nil, err
		}
		u, err := a.upload(ctx, c, in.ID)
		if err != nil {
			return nil, err
		}
		d, err := parseDigest(in.SHA256)
		if err != nil {
			return nil, err
		}
		p, err := a.Uploads.Progress(ctx, u, d)
		if err != nil {
			return nil, err
		}
		body, err := contract.Encode(showPart(p))
		return func(hctx huma.Context) {
			_, w := humago.Unwrap(hctx)
			w.Header().Set(offsetHeader, strconv.FormatInt(p.Offset, 10))
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
		}, err
	})
}
