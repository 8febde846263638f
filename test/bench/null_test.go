package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestFindString(t *testing.T) {
	for _, tt := range []struct {
		name, body, want string
		found            bool
	}{
		{"first", `{"request":{"uid":"a-1","userInfo":{"uid":"b"}}}`, "a-1", true},
		{"empty", `{"uid":""}`, "", true},
		{"absent", `{"id":"a"}`, "", false},
		{"not closed", `{"uid":"a`, "", false},
		{"nothing", ``, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, found := findString([]byte(tt.body), `"uid":"`)
			if string(got) != tt.want || found != tt.found {
				t.Errorf("%q, %v; want %q, %v", got, found, tt.want, tt.found)
			}
		})
	}
}

func TestNullHandler(t *testing.T) {
	for _, tt := range []struct {
		name, method, path, body string
		code                     int
		answer                   string
	}{
		{"mutate", "POST", pathMutate, `{"request":{"uid":"a-1"}}`, 200, nullAdmissionHead + "a-1" + nullAdmissionTail},
		{"validate", "POST", pathValidate, `{"request":{"uid":"a-1"}}`, 200, nullAdmissionHead + "a-1" + nullAdmissionTail},
		{"authenticate", "POST", pathAuthenticate, `{"spec":{"token":"t"}}`, 200, nullTokenReview},
		{"no uid", "POST", pathMutate, `{}`, 400, "no uid\n"},
		{"no token", "POST", pathAuthenticate, `{}`, 400, "no token\n"},
		{"too large", "POST", pathMutate, strings.Repeat("x", maxBody+1), 413, "body of unknown length or too large\n"},
		{"method", "GET", pathMutate, ``, 405, "Method Not Allowed\n"},
		{"path", "POST", "/", ``, 404, "404 page not found\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			handler := nullHandler()
			for range 2 { // the second time with a used buffer
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body)))
				if recorder.Code != tt.code || recorder.Body.String() != tt.answer {
					t.Errorf("%d %q, want %d %q", recorder.Code, recorder.Body.String(), tt.code, tt.answer)
				}
			}
		})
	}
}

// A short body must not show what the buffer held before.
func TestNullHandlerRefusesCutBodies(t *testing.T) {
	handler := nullHandler()
	full := httptest.NewRequest(http.MethodPost, pathMutate, strings.NewReader(`{"request":{"uid":"a-1"}}`))
	handler.ServeHTTP(httptest.NewRecorder(), full)
	cut := httptest.NewRequest(http.MethodPost, pathMutate, strings.NewReader(`{"req`))
	cut.ContentLength = 20
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, cut)
	if recorder.Code != http.StatusBadRequest {
		t.Errorf("status %d: %s", recorder.Code, recorder.Body)
	}
}
