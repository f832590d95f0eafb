mod app;
mod hostile;
mod schedules;
mod sockets;
mod world;
