package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/record"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

const (
	// maxCalls and maxCallBytes bound the reviews that are kept in memory. With the requests that they are grouped into, they take
	// less than 64 MiB.
	maxCalls     = 200_000
	maxCallBytes = 50 << 20
	// callBytes, attributesBytes and causeBytes are what a call, its attributes and a cause of it take beside their strings.
	callBytes, attributesBytes, causeBytes = 152, 256, 128
	// maxMessages bounds the messages of a call, in bytes.
	maxMessages = 4 << 10
)

// call is a review of a recording: a call of a webhook, or a login.
type call struct {
	*attributes

	ID, Name string
	// Causes are the rules that refused or warned, and profiles that were injected.
	Causes []replay.Cause
	// Messages are the lines of the message of a refusal, and warnings.
	Messages []string

	// at is the time in nanoseconds, and took the microseconds until the answer.
	at   int64
	took uint32
	// generated is the length of metadata.generateName, with which the name begins.
	generated uint16
	// file is that of the recording, and number counts the reviews in it from 0.
	number uint32
	file   *recordingFile
}

// attributes are what many calls have in common.
type attributes struct {
	Endpoint, User, Operation, Kind, SubResource, Namespace string
	// Decision is that of record.Review.
	Decision                                string
	DryRun, HasPatch, HasWarnings, Redacted bool
}

// Time returns when the call came.
func (c *call) Time() time.Time { return time.Unix(0, c.at).UTC() }

// Took returns the time until the answer.
func (c *call) Took() time.Duration { return time.Duration(c.took) * time.Microsecond }

// ended returns when the call was answered, in nanoseconds.
func (c *call) ended() int64 { return c.at + int64(c.Took()) }

// object returns the name of the object, or the part of it that is known before the API server generates the rest.
func (c *call) object() string {
	if c.generated > 0 {
		return c.Name[:c.generated]
	}
	return c.Name
}

// isRefused reports whether the answer ends the request.
func (c *call) isRefused() bool { return c.Decision != "" && c.Decision != string(review.Allowed) }

func (c *call) size() int {
	n := callBytes + len(c.ID) + len(c.Name)
	for _, text := range c.Messages {
		n += len(text) + 16
	}
	for i := range c.Causes {
		n += causeBytes + len(c.Causes[i].Kind) + len(c.Causes[i].Name) + len(c.Causes[i].Rule.Rule)
	}
	return n
}

// newCall returns a review as it is kept.
func newCall(r *record.Review, file *recordingFile, number int) *call {
	s, answer := replay.SubjectOf(r), rawjson.Value(r.Response)
	patch := answer.Get("patch").Kind()
	c := &call{
		attributes: &attributes{
			Endpoint: s.Endpoint, User: s.User, Operation: s.Operation, Kind: s.Kind, SubResource: s.SubResource, Namespace: s.Namespace, Decision: string(r.Decision),
			DryRun: s.DryRun, HasPatch: r.Token == nil && patch != rawjson.Invalid && patch != rawjson.Null, HasWarnings: answer.Get("warnings").Len() > 0,
			Redacted: r.Redacted,
		}, ID: s.ID, Name: s.Name, Causes: replay.RecordedCauses(r), file: file, number: uint32(number), //nolint:gosec // a file has fewer
		took: uint32(min(max(r.Took.Microseconds(), 0), 1<<32-1)),
	}
	if year := r.Time.Year(); year > 1900 && year < 2262 {
		c.at = r.Time.UnixNano()
	}
	prefix := rawjson.Value(r.Request).Get("request", "object", "metadata", "generateName").Text()
	if prefix != "" && len(prefix) < 1<<16 && strings.HasPrefix(s.Name, prefix) {
		c.generated = uint16(len(prefix)) //nolint:gosec // as above
	}
	c.setMessages(r, answer)
	return c
}

// setMessages sets the lines of what the answer says, up to maxMessages.
func (c *call) setMessages(r *record.Review, answer rawjson.Value) {
	message := cmp.Or(answer.Get("status", "message").Text(), answer.Get("status", "error").Text()) // of a login
	if message == "" && c.isRefused() {
		message = r.Reason
	}
	texts := []string{message}
	for _, warning := range answer.Get("warnings").Elements() {
		texts = append(texts, warning.Text())
	}
	left := maxMessages
	for _, text := range texts {
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.TrimSpace(line); line != "" && left > 0 {
				line = truncate.Bytes(line, left)
				left -= len(line)
				c.Messages = append(c.Messages, strings.Clone(line))
			}
		}
	}
}

// calls are the newest calls of recordings. The zero calls are of all times.
type calls struct {
	// from and to bound the time, 0 for no bound. To is excluded.
	from, to int64
	// list is in the order of time after sort.
	list  []*call
	bytes int
	// known are the attributes of calls in the list, which those of later calls share.
	known map[attributes]*attributes
	// dropped reports whether older calls were left out.
	dropped bool
}

// add adds a call. The oldest ones are dropped when there are too many.
func (c *calls) add(one *call) {
	if one.at < c.from || c.to != 0 && one.at >= c.to {
		return
	}
	c.list = append(c.list, one)
	c.share(one)
	if c.bytes += one.size(); len(c.list) > maxCalls+maxCalls/10 || c.bytes > maxCallBytes {
		c.sort()
	}
}

// share makes a call share its attributes with calls before it.
func (c *calls) share(one *call) {
	if c.known == nil {
		c.known = map[attributes]*attributes{}
	}
	shared := c.known[*one.attributes]
	if shared == nil {
		shared = one.attributes
		c.known[*shared] = shared
		c.bytes += 2*attributesBytes + len(shared.User) + len(shared.Kind) + len(shared.SubResource) + len(shared.Namespace)
	}
	if one.attributes != shared { // a call that a page shows is not written
		one.attributes = shared
	}
}

// sort sorts the calls, and drops the oldest ones beyond the bounds. If they take too much memory, it makes room for many.
// It changes no call that a page may show: each has the attributes that it shares already.
func (c *calls) sort() {
	slices.SortStableFunc(c.list, func(a, b *call) int { return cmp.Compare(a.at, b.at) })
	most := maxCallBytes
	if c.bytes > maxCallBytes {
		most = maxCallBytes / 4 * 3
	}
	c.bytes, c.known = 0, nil
	for i, one := range slices.Backward(c.list) {
		c.share(one)
		c.bytes += one.size()
		if kept := len(c.list) - i; kept > maxCalls || c.bytes > most {
			c.dropped = true
			c.list = slices.Clone(c.list[i+1:])
			return
		}
	}
}

// request is what an API server was asked: the calls of webhooks for it, in the order of time.
type request struct{ Calls []*call }

// First returns the first call.
func (r *request) First() *call { return r.Calls[0] }

// Last returns the last call, which knows a generated name.
func (r *request) Last() *call { return r.Calls[len(r.Calls)-1] }

// Decision returns the outcome: that of the call which refused the request, if any.
func (r *request) Decision() string {
	for _, c := range r.Calls {
		if c.isRefused() {
			return c.Decision
		}
	}
	return r.First().Decision
}

// maxBetweenCalls is the longest time between the calls for one request: other webhooks may be called in between.
const maxBetweenCalls = 10 * time.Second

// requestKey is what all calls for a request have in common. API servers give each call an ID of its own.
type requestKey struct {
	user, operation, kind, subResource, namespace, object string
	dryRun                                                bool
}

// groupCalls returns the requests of calls in the order of time.
func groupCalls(list []*call) []*request {
	out := make([]*request, 0, len(list))
	open := map[requestKey][]*request{}
	for _, c := range list {
		key := requestKey{c.User, c.Operation, c.Kind, c.SubResource, c.Namespace, c.object(), c.DryRun}
		recent := slices.DeleteFunc(open[key], func(r *request) bool { return c.at-r.Last().ended() > int64(maxBetweenCalls) })
		i := slices.IndexFunc(recent, func(r *request) bool { return r.hasNext(c) })
		if i >= 0 {
			recent[i].Calls = append(recent[i].Calls, c)
		} else {
			r := &request{Calls: []*call{c}}
			out, recent = append(out, r), append(recent, r)
		}
		open[key] = recent
	}
	return out
}

// hasNext reports whether a call is for the same request. A request is mutated first, then again if another webhook has changed the object,
// and then validated by webhooks at the same time. A refusal ends it.
func (r *request) hasNext(c *call) bool {
	last := r.Last()
	switch {
	case c.Endpoint == "mutate":
		isAgain := c.generated == 0 || last.HasPatch && !c.HasPatch // otherwise it may be for another object with a generated name
		return last.Endpoint == "mutate" && !last.isRefused() && c.at >= last.ended() && isAgain
	case c.Endpoint != "validate":
		return false
	case last.Endpoint == "mutate":
		return !last.isRefused() && c.at >= last.ended()
	default:
		return last.Endpoint == "validate" && c.Name == last.Name && c.at < last.ended()
	}
}
