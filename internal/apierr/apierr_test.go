package apierr_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	answer := func(code int, fromServer bool) error {
		return apierrors.NewGenericServerResponse(code, "get", pods, "a", "what it says", 0, !fromServer)
	}
	for _, tc := range []struct {
		name                    string
		err                     error
		want, coarse            apierr.Class
		denied, temporary, lack bool
	}{
		{"none", nil, apierr.None, apierr.None, false, false, false},
		{"credentials", apierrors.NewUnauthorized("who?"), apierr.Unauthorized, apierr.Forbidden, true, false, false},
		{"right", apierrors.NewForbidden(pods, "a", errors.New(`User "x" cannot get resource "pods"`)), apierr.Forbidden, apierr.Forbidden, true, false, true},
		{"admission", apierrors.NewForbidden(pods, "a", errors.New("quota")), apierr.Forbidden, apierr.Forbidden, true, false, false},
		{"no such object", apierrors.NewNotFound(pods, "a"), apierr.NotFound, apierr.Unreachable, false, false, false},
		{"no such path", answer(http.StatusNotFound, false), apierr.Unserved, apierr.Unserved, false, false, false},
		{"exists", apierrors.NewAlreadyExists(pods, "a"), apierr.AlreadyExists, apierr.Unreachable, false, false, false},
		{"changed", apierrors.NewConflict(pods, "a", errors.New("changed")), apierr.Conflict, apierr.Unreachable, false, false, false},
		{"expired", apierrors.NewResourceExpired("too old"), apierr.Expired, apierr.Unreachable, false, false, false},
		{"gone", answer(http.StatusGone, true), apierr.Expired, apierr.Unreachable, false, false, false},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), apierr.Invalid, apierr.Invalid, false, false, false},
		{"bad request", apierrors.NewBadRequest("no JSON"), apierr.Invalid, apierr.Invalid, false, false, false},
		{"too large", apierrors.NewRequestEntityTooLargeError("big"), apierr.Invalid, apierr.Invalid, false, false, false},
		{"overloaded", apierrors.NewTooManyRequests("later", 1), apierr.Unavailable, apierr.Unreachable, false, true, false},
		{"time-out", apierrors.NewServerTimeout(pods, "get", 1), apierr.Unavailable, apierr.Unreachable, false, true, false},
		{"broken", apierrors.NewInternalError(errors.New("etcd")), apierr.Unavailable, apierr.Unreachable, false, true, false},
		{"wrapped", fmt.Errorf("get: %w", apierrors.NewNotFound(pods, "a")), apierr.NotFound, apierr.Unreachable, false, false, false},
		{"no answer", errors.New("connection refused"), apierr.Unreachable, apierr.Unreachable, false, true, false},
		{"deadline", context.DeadlineExceeded, apierr.Unreachable, apierr.Unreachable, false, true, false},
	} {
		got := apierr.Classify(tc.err)
		if got != tc.want || got.Coarse() != tc.coarse || got.IsDenied() != tc.denied || got.IsTemporary() != tc.temporary || apierr.LacksRight(tc.err, "get") != tc.lack {
			t.Errorf("%s: Classify = %q, coarse %q, denied %t, temporary %t", tc.name, got, got.Coarse(), got.IsDenied(), got.IsTemporary())
		}
	}
}
