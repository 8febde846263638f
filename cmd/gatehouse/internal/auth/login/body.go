package login

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

const (
	// maxBodyBytes has room for the largest token, 16 KiB, and as much beside it.
	maxBodyBytes = 32 << 10
	// maxTextBytes bounds a name, a password and an audience. A password is
	// compared as a whole by whatever checks it, so that one must not be cut.
	maxTextBytes = 1 << 10
	// maxAudiences bounds the audiences of a Question.
	maxAudiences = 32
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

// readBody reads the body of a request, which must be JSON unless it is empty.
func readBody(r *http.Request) ([]byte, error) {
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
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, &requestError{status: http.StatusUnsupportedMediaType, reason: ReasonMediaType, text: "the media type must be application/json"}
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
	err := parseObject(body, map[string]func(rawjson.Value) error{
		"directory": into(&r.Directory, "directory", maxTextBytes),
		"username":  into(&r.Username, "username", maxTextBytes),
		"password":  into(&r.Password, "password", maxTextBytes),
		"token":     into(&r.Token, "token", maxBodyBytes),
	}, `"directory", "username", "password" and "token"`)
	if err != nil {
		return Request{}, err
	}
	return r, nil
}

// parseQuestion reads a Question.
func parseQuestion(body []byte) (Question, error) {
	var q Question
	err := parseObject(body, map[string]func(rawjson.Value) error{
		"audiences": func(v rawjson.Value) error {
			if v.Kind() != rawjson.Array {
				return badInput("audiences: must be an array of strings")
			}
			for i, element := range v.Elements() {
				if i >= maxAudiences {
					return badInput("audiences: must have at most %d items", maxAudiences)
				}
				var audience string
				if err := into(&audience, fmt.Sprintf("audiences[%d]", i), maxTextBytes)(element); err != nil {
					return err
				}
				if audience == "" {
					return badInput("audiences[%d]: must not be empty", i)
				}
				q.Audiences = append(q.Audiences, audience)
			}
			return nil
		},
	}, `"audiences"`)
	if err != nil {
		return Question{}, err
	}
	return q, nil
}

// parseObject gives each member of an object to its reader. Every member must have
// one, and none may occur twice; known says which there are.
func parseObject(body []byte, readers map[string]func(rawjson.Value) error, known string) error {
	v, err := rawjson.Parse(body)
	if err != nil {
		syntax := new(rawjson.SyntaxError)
		if errors.As(err, &syntax) {
			return badInput("%s", syntax.Error()) // It never quotes the text.
		}
		return badInput("invalid JSON")
	}
	if v.Kind() != rawjson.Object {
		return badInput("the body must be a JSON object")
	}
	seen := make(map[string]bool, len(readers))
	for name, value := range v.Members() {
		// Names are taken as they are written: one with an escape is not known.
		text := string(name[1 : len(name)-1])
		read := readers[text]
		if read == nil {
			return badInput("unknown field; allowed are %s", known)
		}
		if seen[text] {
			return badInput("%s: must not occur twice", text)
		}
		seen[text] = true
		if err := read(value); err != nil {
			return err
		}
	}
	return nil
}

// into reads a text of bounded length.
func into(text *string, field string, most int) func(rawjson.Value) error {
	return func(v rawjson.Value) error {
		if v.Kind() != rawjson.String {
			return badInput("%s: must be a string", field)
		}
		*text = v.Text()
		if strings.ContainsRune(*text, utf8.RuneError) {
			// That is also what half a surrogate pair is read as: two texts must not
			// become one.
			return badInput("%s: must be valid Unicode, without U+FFFD", field)
		}
		if len(*text) > most {
			return badInput("%s: must not be longer than %d bytes", field, most)
		}
		return nil
	}
}
