package oauth

import (
	"net/http"

	"slipway/internal/platform/fault"
)

// Audience is the resource that a grant's tokens are for (RFC 8707), as its path below the issuer.
type Audience string

// The resources of an installation. A token for one is refused by the other.
const (
	ForAPI Audience = ""     // the REST API, and what authorizations without a resource are for
	ForMCP Audience = "/mcp" // the MCP server
)

// ResourceOf is the identifier of a resource, as clients name it.
func (s *Server) ResourceOf(a Audience) string {
	if a == ForAPI {
		return s.Resource()
	}
	return s.c.Issuer + string(a)
}

// audience reads the resource parameters of an authorization request.
func (s *Server) audience(resources []string) (Audience, *Error) {
	a := ForAPI
	for i, resource := range resources {
		named := ForAPI
		switch resource {
		case s.ResourceOf(ForMCP):
			named = ForMCP
		case s.Resource():
		default:
			return "", s.errTarget()
		}
		if i > 0 && named != a {
			return "", s.errTarget()
		}
		a = named
	}
	return a, nil
}

// CheckResources refuses resource parameters that name anything but one of the installation's resources. The error is an *Error.
func (s *Server) CheckResources(resources []string) error {
	if _, err := s.audience(resources); err != nil {
		return err
	}
	return nil
}

// isFor reports whether tokens for an audience are for each resource that a client names.
func (s *Server) isFor(a Audience, resources []string) bool {
	for _, resource := range resources {
		if resource != s.ResourceOf(a) {
			return false
		}
	}
	return true
}

func (s *Server) errTarget() *Error {
	return &Error{
		Code: "invalid_target", Status: http.StatusBadRequest,
		Description: "resource must be " + s.Resource() + " or " + s.ResourceOf(ForMCP) + ", the same in each request",
	}
}

// errAudience is the error of a valid token at another resource than its own.
var errAudience = fault.New(fault.Unauthorized, "wrong_audience", "This access token is for another resource",
	"ask for authorization with the resource that the WWW-Authenticate header's metadata names")
