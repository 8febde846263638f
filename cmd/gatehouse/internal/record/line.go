package record

import (
	"encoding/json"
	"fmt"
)

// EachObject calls a function with the ID of every object that the lookups name. It may change
// them. Nil lookups name none.
func (l *Lookups) EachObject(visit func(id *int)) {
	if l == nil {
		return
	}
	for i := range l.Namespaces {
		visit(&l.Namespaces[i].Object)
	}
	for _, objects := range [][]ObjectLookup{l.Objects, l.ConfigMaps} {
		for i := range objects {
			visit(&objects[i].Object)
		}
	}
	for i := range l.Lists {
		for j := range l.Lists[i].Objects {
			visit(&l.Lists[i].Objects[j])
		}
	}
}

// AppendLine appends the line of a review with its end, for Writer.WriteText. The request and the
// response are appended as they are, and not checked again.
func (r *Review) AppendLine(dst []byte) ([]byte, error) {
	bare := *r
	bare.Request, bare.Response = nil, nil
	text, err := json.Marshal(&bare)
	if err != nil {
		return nil, fmt.Errorf("encode a review: %w", err)
	}
	dst = append(append(dst, `{"review":`...), text[:len(text)-1]...)
	if r.Request != nil {
		dst = append(append(dst, `,"request":`...), r.Request...)
	}
	if r.Response != nil {
		dst = append(append(dst, `,"response":`...), r.Response...)
	}
	return append(dst, "}}\n"...), nil
}
