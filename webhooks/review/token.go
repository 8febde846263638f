package review

import (
	"context"
	"errors"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// The versions of TokenReview. The API server speaks the one that its flag
// --authentication-token-webhook-version names, v1beta1 by default, and
// understands an answer in that version or in none at all.
const (
	tokenV1      = "authentication.k8s.io/v1"
	tokenV1beta1 = "authentication.k8s.io/v1beta1"
)

// The annotations that explain an answer to the log alone. Nothing of the metadata of an
// answer is sent to the caller. The reason and the backend are of bounded sets, and the
// token's id is public.
const (
	reasonAnnotation  = "gatehouse.dev/reason"
	tokenIDAnnotation = "gatehouse.dev/token-id"
	backendAnnotation = "gatehouse.dev/backend"
	sourceAnnotation  = "gatehouse.dev/source"
	userAnnotation    = "gatehouse.dev/user"
	detailAnnotation  = "gatehouse.dev/detail"
)

// tokenProtocol is the protocol of token authentication webhooks.
type tokenProtocol struct{ f TokenFunc }

func (tokenProtocol) decode(x *exchange) (values int, err error) {
	x.apiVersion, values, err = decodeToken(x.members[:0], x.body, &x.token.Request)
	return values, err
}

func (p tokenProtocol) decide(ctx context.Context, x *exchange) *failure {
	x.token.Pause = func(wait func()) { x.pause(ctx, wait) }
	response := p.f(ctx, &x.token)
	x.outcome.setToken(&response)
	x.answer = AppendToken(x.answer[:0], x.apiVersion, &response.Status)
	return nil
}

// refuse answers 200 with an error, whatever happened to a review, and repeats its
// audiences: the API server compares them before it reads the error, and would take the
// answer for a no. Where the audiences are not known, because there was no memory to read
// them, the answer is a 503, which the API server neither repeats nor caches without a
// Retry-After. A request that is no POST is no review.
func (tokenProtocol) refuse(w http.ResponseWriter, f *failure, _ time.Duration, x *exchange) {
	if f.status == http.StatusMethodNotAllowed || f.status == http.StatusServiceUnavailable && x.apiVersion == "" {
		refuse(w, f, false)
		return
	}
	status := authenticationv1.TokenReviewStatus{Error: f.publicMessage(), Audiences: x.token.Spec.Audiences}
	w.Header()["Content-Type"] = jsonType
	_, _ = w.Write(AppendToken(nil, x.apiVersion, &status)) // fails if the caller has closed the connection
}

// DecodeToken decodes a TokenReview v1 or v1beta1. It returns the apiVersion, which
// the answer must echo, also with an error, as far as it could be read. The error names the member, never its value, and holds nothing
// of the token.
func DecodeToken(body []byte) (authentication.Request, string, error) {
	var request authentication.Request
	apiVersion, _, err := decodeToken(make([]rawjson.Member, 0, maxMembers), body, &request)
	return request, apiVersion, err
}

// decodeToken is DecodeToken with a buffer for members. It also returns the number of
// values in the body.
func decodeToken(members []rawjson.Member, body []byte, into *authentication.Request) (apiVersion string, values int, err error) {
	apiVersion, spec, values, err := envelope(members, body, "TokenReview", "spec", nil)
	if apiVersion != tokenV1 && apiVersion != tokenV1beta1 {
		apiVersion = "" // There is no TokenReview of another version to answer with.
	}
	if err != nil {
		return apiVersion, values, err
	}
	if apiVersion == "" {
		return "", values, errors.New(`apiVersion: must be "` + tokenV1 + `" or "` + tokenV1beta1 + `"`)
	}
	d := fieldReader{prefix: "spec."}
	for _, m := range spec {
		switch string(m.Name) {
		case `"token"`:
			into.Spec.Token = d.string("", "token", m.Value)
		case `"audiences"`:
			into.Spec.Audiences = d.strings("", "audiences", m.Value)
		}
	}
	if d.err == nil && into.Spec.Token == "" {
		d.err = required("spec.token")
	}
	into.APIVersion, into.Kind = apiVersion, "TokenReview"
	return apiVersion, values, d.err
}

// AppendToken appends the TokenReview that answers one of this apiVersion. An
// empty apiVersion is left out, which every API server understands. Of the
// response only the status is written: nothing of the request is ever echoed,
// and an error makes the answer an unauthenticated one, because the API server
// ignores an error beside a yes.
func AppendToken(dst []byte, apiVersion string, status *authenticationv1.TokenReviewStatus) []byte {
	dst = append(dst, '{')
	if apiVersion != "" {
		dst = append(dst, `"kind":"TokenReview","apiVersion":`...)
		dst = rawjson.AppendString(dst, apiVersion)
		dst = append(dst, ',')
	}
	if !status.Authenticated || status.Error != "" {
		dst = append(dst, `"status":{"authenticated":false,"user":{}`...)
		if status.Error != "" {
			// The API server compares audiences before it looks at the error:
			// without them a review for another audience than its own would be a
			// plain no, which it caches.
			if len(status.Audiences) > 0 {
				dst = append(dst, `,"audiences":`...)
				dst = appendStrings(dst, status.Audiences)
			}
			dst = append(dst, `,"error":`...)
			dst = rawjson.AppendString(dst, bound(status.Error, 256, false))
		}
		return append(dst, "}}"...)
	}
	dst = append(dst, `"status":{"authenticated":true,"user":{"username":`...)
	dst = rawjson.AppendString(dst, status.User.Username)
	if status.User.UID != "" {
		dst = append(dst, `,"uid":`...)
		dst = rawjson.AppendString(dst, status.User.UID)
	}
	if len(status.User.Groups) > 0 {
		dst = append(dst, `,"groups":`...)
		dst = appendStrings(dst, status.User.Groups)
	}
	if len(status.User.Extra) > 0 {
		dst = append(dst, `,"extra":{`...)
		comma := false
		for _, key := range sortedKeys(status.User.Extra) {
			if comma {
				dst = append(dst, ',')
			}
			comma = true
			dst = rawjson.AppendString(dst, key)
			dst = append(dst, ':')
			dst = appendStrings(dst, status.User.Extra[key])
		}
		dst = append(dst, '}')
	}
	dst = append(dst, '}')
	if len(status.Audiences) > 0 {
		dst = append(dst, `,"audiences":`...)
		dst = appendStrings(dst, status.Audiences)
	}
	return append(dst, "}}"...)
}
