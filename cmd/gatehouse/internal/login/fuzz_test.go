package login_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/login"
)

// strictly is encoding/json's reading of the same, as strict as that can be.
func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// FuzzParseRequest holds that what is read is what encoding/json reads, and that
// an error repeats nothing of the body.
func FuzzParseRequest(f *testing.F) {
	for _, seed := range []string{
		loginBody, `{"token":"` + token + `"}`, `{}`, ` {"directory":"corp"} `, `{"password":"\ud83d\ude00\u0000"}`,
		`{"password":"a","Password":"b"}`, `{"password":"a","password":"b"}`, `{"password":null}`, `{"\u0070assword":"x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := login.ParseRequest(body)
		if err != nil {
			silent(t, body, err)
			return
		}
		var want login.Request
		if err := strictly(body, &want); err != nil || got != want {
			t.Fatalf("%q is read as %+v, by encoding/json as %+v (%v)", body, got, want, err)
		}
	})
}

// silent wants an error to be printable, short, and without a piece of the body
// that is long enough to be a secret. What errors say by themselves is no secret.
func silent(t *testing.T, body []byte, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 200 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Fatalf("the error is %q", text)
	}
	const secret = 8
	for i := 0; i+secret <= len(body); i++ {
		piece := string(body[i : i+secret])
		if strings.Contains(text, piece) && !strings.Contains(ownWords, piece) {
			t.Fatalf("the error %q repeats %q", text, piece)
		}
	}
}

// ownWords are those of which errors are made.
const ownWords = `the body must be a JSON object with strings; allowed are "directory", "username", "password", "token" and "scope", each once` +
	`username: directory: token: password: must not be longer than 1024 bytes must not be longer than 32768 bytes must be valid Unicode, without U+FFFD `
