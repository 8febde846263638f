package review

import (
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/authentication"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// The versions of TokenReview. The API server speaks the one that its flag
// --authentication-token-webhook-version names, v1beta1 by default, and
// understands an answer in that version or in none at all.
const (
	tokenV1      = "authentication.k8s.io/v1"
	tokenV1beta1 = "authentication.k8s.io/v1beta1"
)

// The annotations with which an answer tells the log, and nobody else, what led
// to it. Nothing of an answer's metadata is written to the wire.
const (
	// ReasonAnnotation holds one of a bounded set of words.
	ReasonAnnotation = "gatehouse.dev/reason"
	// TokenIDAnnotation holds the public id of the token.
	TokenIDAnnotation = "gatehouse.dev/token-id"
	// BackendAnnotation holds the authenticator that the token was for: one of a
	// bounded set of words.
	BackendAnnotation = "gatehouse.dev/backend"
	// SourceAnnotation holds where the identity comes from: a word of the
	// configuration.
	SourceAnnotation = "gatehouse.dev/source"
	// UserAnnotation holds the name of the user whom the token belongs to.
	UserAnnotation = "gatehouse.dev/user"
	// DetailAnnotation holds what more an operator may know.
	DetailAnnotation = "gatehouse.dev/detail"
)

// DecodeToken reads a TokenReview v1 or v1beta1 from its JSON text. It returns
// the apiVersion, which the answer must echo, also with an error, as far as it
// could be read. The error names the member, never its value, and holds nothing
// of the token.
func DecodeToken(body []byte) (authentication.Request, string, error) {
	var request authentication.Request
	apiVersion, _, err := decodeToken(make([]rawjson.Member, 0, maxMembers), body, &request)
	return request, apiVersion, err
}

// decodeToken is DecodeToken that also counts the values in the body.
func decodeToken(room []rawjson.Member, body []byte, into *authentication.Request) (apiVersion string, values int, err error) {
	apiVersion, spec, values, err := envelope(room, body, "TokenReview", "spec")
	if apiVersion != tokenV1 && apiVersion != tokenV1beta1 {
		apiVersion = "" // There is no TokenReview of another version to answer with.
	}
	if err != nil {
		return apiVersion, values, err
	}
	if apiVersion == "" {
		return "", values, errors.New(`apiVersion: must be "` + tokenV1 + `" or "` + tokenV1beta1 + `"`)
	}
	d := reader{prefix: "spec."}
	for _, m := range spec {
		switch string(m.Name) {
		case `"token"`:
			into.Spec.Token = d.text("", "token", m.Value)
		case `"audiences"`:
			into.Spec.Audiences = d.texts("", "audiences", m.Value)
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
