package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway/internal/program/runtime"
)

const (
	// awayPatience is how long a start waits for an API server that doesn't answer.
	awayPatience = 5 * time.Minute
	awayPause    = 500 * time.Millisecond
)

const awayLine = "The cluster's API server does not answer. The program starts as soon as it does."

// away reports whether an error says that the API server isn't there, or has too much to do: not that it refuses.
func away(err error) bool {
	var refused apierrors.APIStatus
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &refused):
		return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
			apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
	}
	var network net.Error // of the connection, or of the client that waited for it
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// patiently repeats a step of a start, which may be repeated, until the API server answers, and tells the user once that it doesn't.
func (e *Engine) patiently(ctx context.Context, s *runtime.Spec, step func() error) error {
	told := false
	for late := time.Now().Add(awayPatience); ; {
		err := step()
		if !away(err) || time.Now().After(late) {
			return err
		}
		if !told && s.Output != nil {
			s.Output("system", awayLine)
		}
		told = true
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(awayPause):
		}
	}
}
