// SPDX-License-Identifier: Apache-2.0
//! Maximum flow in a small network (Dinic's algorithm), which can go on from a flow that is there.

/// Room this small, in parts of all capacity, is what rounding leaves, and counts as none.
pub const NOTHING: f64 = 1e-13;

const NO_EDGE: usize = usize::MAX;

/// A network and a flow in it.
///
/// Invariants: edge `e` and `e ^ 1` are each other's way back; the room of both together is the
/// capacity; room is never negative. What flows into a node flows out of it, except at the source
/// and the sink: `fill` sees to it, and so does the caller of `put`.
pub struct Flow {
    first: Vec<usize>,
    next: Vec<usize>,
    head: Vec<usize>,
    room: Vec<f64>,
    level: Vec<u32>,
    todo: Vec<usize>,
    queue: Vec<usize>,
}

impl Flow {
    /// A network of `nodes` nodes without edges.
    pub fn new(nodes: usize) -> Self {
        let (first, level) = (vec![NO_EDGE; nodes], vec![0; nodes]);
        Self {
            first,
            next: Vec::new(),
            head: Vec::new(),
            room: Vec::new(),
            level,
            todo: Vec::new(),
            queue: Vec::new(),
        }
    }

    /// Adds a node.
    pub fn node(&mut self) -> usize {
        self.first.push(NO_EDGE);
        self.level.push(0);
        self.first.len() - 1
    }

    /// Adds an edge; returns its number.
    pub fn add(&mut self, from: usize, to: usize, capacity: f64) -> usize {
        let edge = self.head.len();
        for (tail, head, room) in [(from, to, capacity), (to, from, 0.0)] {
            self.next.push(self.first[tail]);
            self.first[tail] = self.head.len();
            self.head.push(head);
            self.room.push(room);
        }
        edge
    }

    /// Where `edge` ends.
    pub fn head(&self, edge: usize) -> usize {
        self.head[edge]
    }

    /// What `edge` carries.
    pub fn carried(&self, edge: usize) -> f64 {
        self.room[edge ^ 1]
    }

    /// Takes all flow away.
    pub fn clear(&mut self) {
        for pair in self.room.chunks_exact_mut(2) {
            pair[0] += pair[1];
            pair[1] = 0.0;
        }
    }

    /// Gives `edge`, which must carry nothing, another capacity.
    pub fn set_capacity(&mut self, edge: usize, capacity: f64) {
        self.room[edge] = capacity;
    }

    /// Sends `amount` over `edge` alone; the caller sees to the other edges. Rounding does not take
    /// room below 0.
    pub fn put(&mut self, edge: usize, amount: f64) {
        self.room[edge] = (self.room[edge] - amount).max(0.0);
        self.room[edge ^ 1] += amount;
    }

    /// Adds flow until no more fits. Returns all that leaves `source`.
    pub fn fill(&mut self, source: usize, sink: usize) -> f64 {
        while self.find_levels(source, sink) {
            self.todo.clone_from(&self.first);
            while self.send(source, sink, f64::INFINITY) > NOTHING {}
        }
        let mut sum = 0.0;
        let mut edge = self.first[source];
        while edge != NO_EDGE {
            sum += self.carried(edge);
            edge = self.next[edge];
        }
        sum
    }

    /// The nodes to which more than `least` could be sent from `start`.
    pub fn reached(&self, start: usize, least: f64) -> Vec<bool> {
        self.search(start, |edge| self.room[edge] > least)
    }

    /// The nodes from which more than `least` could be sent to `goal`.
    pub fn reaches(&self, goal: usize, least: f64) -> Vec<bool> {
        self.search(goal, |edge| self.room[edge ^ 1] > least)
    }

    fn search(&self, start: usize, passable: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut seen = vec![false; self.first.len()];
        seen[start] = true;
        let mut stack = vec![start];
        while let Some(node) = stack.pop() {
            let mut edge = self.first[node];
            while edge != NO_EDGE {
                let head = self.head[edge];
                if !seen[head] && passable(edge) {
                    seen[head] = true;
                    stack.push(head);
                }
                edge = self.next[edge];
            }
        }
        seen
    }

    /// Finds the distances from the source, plus 1. Returns whether the sink can be reached.
    fn find_levels(&mut self, source: usize, sink: usize) -> bool {
        self.level.fill(0);
        self.level[source] = 1;
        self.queue.clear();
        self.queue.push(source);
        let mut at = 0;
        while at < self.queue.len() && self.level[sink] == 0 {
            let node = self.queue[at];
            at += 1;
            let mut edge = self.first[node];
            while edge != NO_EDGE {
                let head = self.head[edge];
                if self.level[head] == 0 && self.room[edge] > NOTHING {
                    self.level[head] = self.level[node] + 1;
                    self.queue.push(head);
                }
                edge = self.next[edge];
            }
        }
        self.level[sink] != 0
    }

    /// Sends up to `bound` from `node` to the sink along rising levels, over as many ways as
    /// needed. The depth is bounded by the number of nodes.
    fn send(&mut self, node: usize, sink: usize, bound: f64) -> f64 {
        if node == sink {
            return bound;
        }
        let mut sent = 0.0;
        while self.todo[node] != NO_EDGE {
            let edge = self.todo[node];
            let head = self.head[edge];
            if self.room[edge] > NOTHING && self.level[head] == self.level[node] + 1 {
                let wanted = (bound - sent).min(self.room[edge]);
                let through = self.send(head, sink, wanted);
                self.put(edge, through);
                sent += through;
                if bound - sent <= NOTHING {
                    return sent;
                }
            }
            self.todo[node] = self.next[edge];
        }
        sent
    }
}
