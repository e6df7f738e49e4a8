//! The terminal, which is redrawn at each refresh and restored at the end.

use super::view::{Line, Tone};
use crate::failure::Failure;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, text};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Time in which the thread that waits for keys notices the end.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// A terminal in its alternate screen, until it is dropped.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    is_over: Arc<AtomicBool>,
    end: Arc<Notify>,
}

impl Screen {
    /// Takes over the terminal.
    pub(super) fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init()
            .map_err(|error| Failure::failed(format!("cannot use the terminal: {error}")))?;
        let (is_over, end) = (Arc::<AtomicBool>::default(), Arc::<Notify>::default());
        let (seen, told) = (Arc::clone(&is_over), Arc::clone(&end));
        tokio::task::spawn_blocking(move || {
            while !seen.load(Ordering::Relaxed) {
                // A terminal that fails ends the view, too.
                if is_end().unwrap_or(true) {
                    told.notify_one();
                    return;
                }
            }
        });
        Ok(Self {
            terminal,
            is_over,
            end,
        })
    }

    /// Draws lines, made for the height of the terminal.
    pub(super) fn show(&mut self, lines: impl FnOnce(usize) -> Vec<Line>) -> Result<(), Failure> {
        let drawn = self.terminal.draw(|frame| {
            let rows = usize::from(frame.area().height);
            let mut shown: Vec<text::Line<'_>> = lines(rows)
                .into_iter()
                .map(|line| text::Line::styled(line.text, style(line.tone)))
                .collect();
            shown.push(text::Line::styled("q ends", style(Tone::Heading)));
            frame.render_widget(Paragraph::new(Text::from(shown)), frame.area());
        });
        let failed = |error| Failure::failed(format!("cannot draw on the terminal: {error}"));
        drawn.map(drop).map_err(failed)
    }

    /// Waits until a key ends the view.
    pub(super) async fn ended(&self) {
        self.end.notified().await;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        ratatui::restore();
    }
}

/// Waits briefly for a key. Returns whether the key ends the view.
fn is_end() -> std::io::Result<bool> {
    if !event::poll(KEY_WAIT)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read()? else {
        return Ok(false);
    };
    let is_interrupt =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

fn style(tone: Tone) -> Style {
    let style = Style::default();
    match tone {
        Tone::Plain => style,
        Tone::Heading => style.add_modifier(Modifier::DIM),
        Tone::Good => style.fg(Color::Green),
        Tone::Warning => style.fg(Color::Yellow),
        Tone::Bad => style.fg(Color::Red).add_modifier(Modifier::BOLD),
    }
}
