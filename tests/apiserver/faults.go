package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The switches, plain HTTP on --admin:
//
//	POST   /faults       {"status":429,"retryAfter":1,"count":2,"method":"PATCH","path":"/api/v1/nodes/","agent":"machine-config-agent"}
//	                     the next 2 such requests (method, path and agent are starts, absent is any) are answered so;
//	                     "count":0 is all of them; they are audited, with the user they came from
//	POST   /faults       {"expire":true,...}  a watch is answered with the error event of an expired version
//	POST   /faults       {"hold":true,...}    a request waits until DELETE /faults
//	POST   /faults       {"delay":6000,...}   a request is served so many milliseconds later
//	POST   /faults       {"lose":true,"skip":3,...}  a write is made and audited, and its connection closed in the answer's place;
//	                     not the first 3 of them, and none that is refused
//	DELETE /faults       no faults any more; prints how many requests each of them met
//	GET    /connections  {"ADDRESS":"AGENT",...} of the clients that are connected
//	POST   /connections  {"state":"drop"}    closes them all
//	                     {"state":"hang"}    half-open: these and new ones stay, but nothing goes through either way
//	                     {"state":"resume"}  what hung is closed, new ones are served again
type fault struct {
	Status     int    `json:"status"`
	RetryAfter int    `json:"retryAfter"`
	Expire     bool   `json:"expire"`
	Hold       bool   `json:"hold"`
	Delay      int    `json:"delay"`
	Lose       bool   `json:"lose"`
	Skip       int    `json:"skip"`
	Count      int    `json:"count"`
	Method     string `json:"method"`
	Path       string `json:"path"`
	Agent      string `json:"agent"`
	met        int
	skipped    int
	released   chan struct{}
}

func (f *fault) meets(r *http.Request) bool {
	if f.Count > 0 && f.met >= f.Count || f.Expire && r.URL.Query().Get("watch") == "" || f.Lose && r.Method == http.MethodGet {
		return false
	}
	return strings.HasPrefix(r.Method, f.Method) && strings.HasPrefix(r.URL.Path, f.Path) && strings.HasPrefix(r.UserAgent(), f.Agent)
}

type faults struct {
	lock  sync.Mutex
	now   []*fault
	wires *wires
}

// within answers in the API's place what a fault is set for.
func (f *faults) within(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.wires.heard(r)
		switch met := f.meet(r); {
		case met == nil:
			api.ServeHTTP(w, r)
		case met.Hold:
			select {
			case <-met.released:
				api.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		case met.Delay > 0:
			select {
			case <-time.After(time.Duration(met.Delay) * time.Millisecond):
			case <-met.released:
			case <-r.Context().Done():
			}
			api.ServeHTTP(w, r)
		case met.Lose:
			f.lose(met, api, w, r)
		case met.Expire:
			expired := apierrors.NewResourceExpired("too old resource version: the test says so").ErrStatus
			expired.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			answer(w, http.StatusOK, map[string]any{"type": "ERROR", "object": expired})
		default:
			if met.RetryAfter > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(met.RetryAfter))
			}
			status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(met.Status), Reason: reason(met.Status), Message: "the test says so"}
			answer(w, met.Status, status)
		}
	})
}

func reason(status int) metav1.StatusReason {
	switch status {
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusInternalServerError:
		return metav1.StatusReasonInternalError
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusGone:
		return metav1.StatusReasonExpired
	}
	return metav1.StatusReasonUnknown
}

func (f *faults) meet(r *http.Request) *fault {
	f.lock.Lock()
	defer f.lock.Unlock()
	at := slices.IndexFunc(f.now, func(one *fault) bool { return one.meets(r) })
	if at < 0 {
		return nil
	}
	// Whether an answer is lost is known with the answer.
	if !f.now[at].Lose {
		f.now[at].met++
	}
	return f.now[at]
}

// lose serves a write, and loses the answer of one that was made.
func (f *faults) lose(met *fault, api http.Handler, w http.ResponseWriter, r *http.Request) {
	served := httptest.NewRecorder()
	// Another answer that is lost closes the connection of this one too: a write that was begun ends, and is audited as it ended.
	api.ServeHTTP(served, r.WithContext(context.WithoutCancel(r.Context())))
	lost := served.Code < http.StatusMultipleChoices && f.loses(met)
	if lost {
		f.wires.lose(r)
	}
	for name, values := range served.Header() {
		w.Header()[name] = values
	}
	if lost {
		// The audit log has it. It is sent when all is done: what does not fit a buffer would be sent, and end the connection, before.
		w.Header().Del("Content-Length")
		w.WriteHeader(served.Code)
		return
	}
	w.WriteHeader(served.Code)
	_, _ = w.Write(served.Body.Bytes())
}

func (f *faults) loses(met *fault) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	if met.skipped < met.Skip {
		met.skipped++
		return false
	}
	if met.Count > 0 && met.met >= met.Count {
		return false
	}
	met.met++
	return true
}

func (f *faults) set(w http.ResponseWriter, r *http.Request) {
	one := &fault{released: make(chan struct{})}
	if err := json.NewDecoder(r.Body).Decode(one); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.now = append(f.now, one)
}

func (f *faults) clear(w http.ResponseWriter, _ *http.Request) {
	f.lock.Lock()
	defer f.lock.Unlock()
	met := []int{}
	for _, one := range f.now {
		met = append(met, one.met)
		close(one.released)
	}
	f.now = nil
	answer(w, http.StatusOK, met)
}

// serve listens for the switches.
func (f *faults) serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /faults", f.set)
	routes.HandleFunc("DELETE /faults", f.clear)
	routes.HandleFunc("GET /connections", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, f.wires.clients()) })
	routes.HandleFunc("POST /connections", func(w http.ResponseWriter, r *http.Request) {
		var wanted struct{ State string }
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		} else if err := f.wires.become(wanted.State); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	go func() { _ = http.Serve(listener, routes) }()
	return nil
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// wires are the connections of the API's listener, which can be cut and silenced.
type wires struct {
	net.Listener
	lock sync.Mutex
	open map[*wire]string // and who speaks on it, once it is known
	// hung is closed when the connections are to be heard again; nil while they are.
	hung chan struct{}
}

func listen(address string) (*wires, error) {
	listener, err := net.Listen("tcp", address)
	return &wires{Listener: listener, open: map[*wire]string{}}, err
}

func (l *wires) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &wire{Conn: connection, of: l, closed: make(chan struct{})}
	l.lock.Lock()
	defer l.lock.Unlock()
	l.open[one] = ""
	return one, nil
}

// heard notes who speaks on a connection.
func (l *wires) heard(r *http.Request) {
	l.lock.Lock()
	defer l.lock.Unlock()
	for one := range l.open {
		if one.RemoteAddr().String() == r.RemoteAddr {
			l.open[one] = r.UserAgent()
		}
	}
}

// lose has the connection of a request closed by its answer.
func (l *wires) lose(r *http.Request) {
	l.lock.Lock()
	defer l.lock.Unlock()
	for one := range l.open {
		if one.RemoteAddr().String() == r.RemoteAddr {
			one.lost.Store(true)
		}
	}
}

func (l *wires) clients() map[string]string {
	l.lock.Lock()
	defer l.lock.Unlock()
	all := map[string]string{}
	for one, agent := range l.open {
		all[one.RemoteAddr().String()] = agent
	}
	return all
}

func (l *wires) become(state string) error {
	l.lock.Lock()
	before := l.hung
	cut := make([]*wire, 0, len(l.open))
	for one := range l.open {
		cut = append(cut, one)
	}
	switch state {
	case "hang":
		if before == nil {
			l.hung = make(chan struct{})
		}
		cut = nil
	case "drop", "resume":
		l.hung = nil
	default:
		cut = nil
	}
	l.lock.Unlock()
	if !slices.Contains([]string{"drop", "hang", "resume"}, state) {
		return fmt.Errorf("state %q: drop, hang or resume is wanted", state)
	}
	for _, one := range cut {
		_ = one.Close()
	}
	if before != nil && state != "hang" {
		close(before)
	}
	return nil
}

// wire is one connection. What it read while it hung is not handed on before it is heard again.
type wire struct {
	net.Conn
	of     *wires
	once   sync.Once
	closed chan struct{}
	lost   atomic.Bool
}

func (c *wire) wait() {
	c.of.lock.Lock()
	hung := c.of.hung
	c.of.lock.Unlock()
	if hung == nil {
		return
	}
	select {
	case <-hung:
	case <-c.closed:
	}
}

func (c *wire) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	c.wait()
	return n, err
}

func (c *wire) Write(from []byte) (int, error) {
	c.wait()
	if c.lost.Load() {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(from)
}

func (c *wire) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.of.lock.Lock()
		delete(c.of.open, c)
		c.of.lock.Unlock()
	})
	return c.Conn.Close()
}
