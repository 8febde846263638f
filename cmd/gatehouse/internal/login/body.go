package login

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

const (
	// maxBodyBytes has room for the largest token, 16 KiB, and as much beside it.
	maxBodyBytes = 32 << 10
	// jsonMedia and formMedia are the media types of requests.
	jsonMedia, formMedia = "application/json", "application/x-www-form-urlencoded"
	// maxTextBytes bounds a name and a password. A password is
	// compared as a whole by whatever checks it, so that one must not be cut.
	maxTextBytes = 1 << 10
)

// requestError says why a request cannot be answered. Its text holds nothing of
// the request.
type requestError struct {
	status       int
	reason, text string
}

func (e *requestError) Error() string { return e.text }

func badInput(format string, args ...any) *requestError {
	return &requestError{status: http.StatusBadRequest, reason: string(authn.ReasonInput), text: fmt.Sprintf(format, args...)}
}

// readBody reads the body of a request within its bound. It must have the media type unless
// it is empty.
func readBody(r *http.Request, want string) ([]byte, error) {
	if r.URL.RawQuery != "" {
		// What stands in a URL ends up in the logs of proxies.
		return nil, badInput("the URL must not have a query")
	}
	if r.ContentLength > maxBodyBytes {
		return nil, tooLarge()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxBodyBytes:
		return nil, tooLarge()
	case len(body) == 0:
		return nil, nil
	}
	// A browser sends JSON to another origin only if that agrees, and this one
	// does not.
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != want {
		return nil, &requestError{status: http.StatusUnsupportedMediaType, reason: ReasonMediaType, text: "the media type must be " + want}
	}
	return body, nil
}

func tooLarge() *requestError {
	return &requestError{
		status: http.StatusRequestEntityTooLarge, reason: ReasonBodyTooLarge,
		text: fmt.Sprintf("the body is larger than %d bytes", maxBodyBytes),
	}
}

// parseRequest reads a Request. Readers of JSON disagree about members that occur
// twice and about the case of names (CVE-2022-2385 was of that kind), so that
// neither is taken.
func parseRequest(body []byte) (Request, error) {
	var r Request
	// Their errors repeat names of members.
	problems, err := kjson.UnmarshalStrict(body, &r, kjson.DisallowDuplicateFields, kjson.DisallowUnknownFields)
	if err != nil || len(problems) > 0 || !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) {
		return Request{}, badInput(`the body must be a JSON object with strings; allowed are "directory", "username", "password", "token" and "scope", each once`)
	}
	for _, field := range []struct {
		name, value string
		most        int
	}{
		{"directory", r.Directory, maxTextBytes}, {"username", r.Username, maxTextBytes}, {"password", r.Password, maxTextBytes}, {"token", r.Token, maxBodyBytes}, {"scope", r.Scope, maxTextBytes},
	} {
		if strings.ContainsRune(field.value, utf8.RuneError) {
			// That is also what invalid UTF-8 and half a surrogate pair are read as: two texts
			// must not become one.
			return Request{}, badInput("%s: must be valid Unicode, without U+FFFD", field.name)
		}
		if len(field.value) > field.most {
			return Request{}, badInput("%s: must not be longer than %d bytes", field.name, field.most)
		}
	}
	return r, nil
}
